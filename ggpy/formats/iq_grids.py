"""The grids of the IQ formats: the few points that a run of 4 or 8 weights can take before signs and scales.

A grid of width w is a set of points with coordinates out of a short list of values. Read as a number whose lowest digit
is the first coordinate (the digit being the value's place in the list), points stand in ascending order, and weights
name them by index. So a set of such numbers is all there is to store: a bit map, compressed, in base 85.
"""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

IQ2_VALUES = (8, 25, 43)
IQ3_XXS_VALUES = (4, 12, 20, 28, 36, 44, 52, 62)
IQ3_S_VALUES = (1, 3, 5, 7, 9, 11, 13, 15)
IQ1_VALUES = (-1, 0, 1)


def _grid(values: tuple[int, ...], width: int, bit_map: str) -> NDArray[np.int8]:
    """The points (n, width) of a grid, in the order in which weights index them; read-only."""
    bits = np.unpackbits(np.frombuffer(zlib.decompress(base64.b85decode(bit_map)), np.uint8), bitorder="little")
    digits = np.flatnonzero(bits)[:, None] // len(values) ** np.arange(width) % len(values)
    points: NDArray[np.int8] = np.array(values, np.int8)[digits]
    points.flags.writeable = False
    return points


IQ2_XXS_GRID = _grid(IQ2_VALUES, 8, (
    "c-nPRORB^$43oj#tB`je2YP^R=KfcCw)5@K5e=lV<VbEmf91ogR%p3E0BR^O#16P=^@J3)+t0mx___f>P^zDolEn6;is&dxI!#Zg_{Ku"
    "zkVd4Mw`?l*l~*(z5~c8Qj-!-YZym34v`$TQ4<4*~)dpL;rq|+W4irx`d$&)6^vGb7UkLBrzcFbHqcf>sMFwRxr;MTG;*}m%Qlby-@@T"
    "Sk)X7om@@#uKQIjUUWQ&$2&y}*gX5TV=Bc|Cuh1wL(2Kn3A3Yj<N%;gblzhT7_jxp@MF=lA5st5R^Hl2J=^JV`E{Z0D^#$6R7"
))
IQ2_XS_GRID = _grid(IQ2_VALUES, 8, (
    "c-mc2TdsvL2pkgnkBRPwCicH3cK=&BJX-bM<{ZTW!^|+oxJIi-qkD|rsuaR~iB<*?x~C4>8J0pJW<V>X*vo#SY&(-c)w(<-fCU6QVt|)"
    "*=>oJ=N8h~B3mmYKBw*Y)Ca<s*uvOak7T*la5<g=kAh?T96(5+bR(Mt@J=L5^n!u1sF+~=p=RjVCGbM+vDH*59tF!>kC`)-u3GzO}jM8"
    "X_r-*1ytubG*&a^iqGs?p-do}D8x2NWXU?%O)=7t88q040RdJ=Ak)9T+$YBcFD31^6BC_W+mG1}iEA-T}Oj@u6-pQ1yByIl9%`W3mW#F"
    "%j~<yh(N0zSL~oH^Zy%}}tQx4=M73#xoc?jNErTmD?iDs40;(&MG>YYMNuDE=SK;cc#9vM%q_=>7msuqjC"
))
IQ2_S_GRID = _grid(IQ2_VALUES, 8, (
    "c-n1JU5W-F3~NE(E9iYHjPDBe{#V(wI=kPpE5rQ7#3X8F%Z9aF@G^(h-0EI3Em0|W3^QwctZ7zp0a8G#rYWS&oF&YfEj@sgh^u5FBBgC"
    ">LAkBEEtarKv-X}c)kMD5E9g)N*35uFS6j&;COQ!QC2=T0oAzp}=fs8f?3xctXeG?g^dQAA!2(KVP=j1x!<Qgx@l7F)Pu!TMd$m>{ZzE"
    "ray(N$AzRb24)#*U9zYZZF^+2!@EVQ9?ARiEH!J<ErE8usn4?()-BQhW*1pE<<S|Z6aT82aQO}QP4+el6zUY~*z7~Sl6pK?p!Q_DMIhH"
    "4w7?joIO9P^#Dw9CRS7mu8OBC|vDii4FoWN_zK9m?6y$}qXC*pyH_2f!)+bXep&HXz~CYasM7Fd3(JhmM~KIbkHJ7yU4;E692~{FNElH"
    "Of~Fzm+TBn!W(JyjC6"
))
IQ3_XXS_GRID = _grid(IQ3_XXS_VALUES, 4, (
    "c-l=-F%H5o3_M%0RAmZ7_lgPeigaLyA4Q!IuVCbv_?)J2Rn;aw-<^~BWtxCXwzFx0%xW)eST<YW5KL&L;j#hAAHoX-c)&}FY<X@1m|7I"
    "GsjrX>q7@bAuHrcP3L2_`6x)_>^v5;&o?@Fdagv_Uo9H*utGOGEJ93R6P|L2rgx{U}Y-UnrS3sKYtPIbF!WdDS7|dsT<9UQCqzhJe8+4"
    "kK5km%XvHjm=J(sMgqk-e3v^zjTJayVggoDWMJzTWE4a0T)3l-9P!ydlNePrBA?Xny*@kmBo4W|8$?wEo20v5Uy_5"
))
IQ3_S_GRID = _grid(IQ3_S_VALUES, 4, (
    "c-k#d!AiqG5PdVu!e&pqA>uXNMyUCUt<-~hDT4SrX{pfmmf{D9Rs{Q#&TgE;z`Qr}-rMBob#A|%IbF{W(Id*&Lkwq!%0~0(%@Ao{OU0l"
    "D_x2OXCI^OquXIKLt}o^pYnG?L6&oz+9HeSVPSrN(A}t!YmF^Xmp*3Qy-5G8(e|b5Y-VC?q(AA>+32wuC)HmEXp@c1}PT|h83}iuXSwt"
    "^ePGkv?U+Lf3a_=1ov?9@{igP&9v4ypFswx3&TJZ@M2_=SuX>*z&qp%+CoXl)ge8!drA@5Agyn!FG+()?*sDei}n1QT95(J|p-wR7#Ah"
    "t{0!Hx!aZfy;cl!bD4D3uqR(zW`GY5;6>@R{_|3X$jRqNR^eu)^e<Ll^vCYlKPU1;QQ+o$IB(hKom+bHx0SXmXXwyZnVo8~6jd#wQ>"
))
IQ1_GRID = _grid(IQ1_VALUES, 8, (
    "c-k#eK}(!R7=CxE;dM-9V?RN1diSfb(^(PgE$L;EU0C#DLh=VZ*|bQ>IZZw%yXlwN6ha`hG?#HO$v6$G@ldv(umMk2dT8mb2WdTox*h^"
    "v8VtnDuD#8?@Vw9Syw7v(LR2?w<}y}3b9YJG^C&5*&qs>Nl?x;NhAB!%0hRecnsm$a2YwJ@;QqccSPG~@n#@N5uBY$^gNY22s7}?HYgo"
    "xmY#Y+!Ajh1yxWA4l1OzVO1-XRyWBes^wA;LAoBq<x!%nuPhFWp9`{&R@7DG%<XIwD^Is3Q$Jf@<B<<hd(0^?jzIHG8vQn*?-$Ub(LsH"
    "W&@kYNcQ%|}dP%c;av8KJU^mWiJv*28-WD<$YEG%#}+D!ES;XeDuFD(VlG#i@A4$V;H%7rH52w&LB_pg1xSvl=L<CZ@9?{WdkSxbxSuM"
    "q|l64F4MqT|O(RS}O@H(bLXvHn!_OntvSw2GXTKiD_6XGLxujp0!)qyF+V=7Bv?g3oFy??D1-6?{(2le%HQrc>Le(m#@Cb_P%)g$;r#{"
    "<KcsUbe#9?p_<1{H>jE?+1SCIq;Fwj@yPMjA_U90?}vdY$)D1%>fQq-z{36HBT$I&mG*v%J#A~V%aSj@pZtCEAg}V1eou`2@uUxU_YQ="
    ")6;l3U7EjmAKr#y2F0kdO91c}@u6ikZ68>90+)KINV7E3oVy0wcNC7Qg*Gnz$6Ckekcj5w;yQl$8BcV}uIeIA*;9XR~L2uzcrHYS+2)y"
    "-rqrtcg6e{stpn$cM#il(dTBx(R&0u-;P1DmAvG}u@dX;b%ns9v~6p49X^c}lqEMlIFjzJBbrp$X4T{{D_p5YV7e^~xM<^E7<_56qcAa"
    "L=FI+lT|4v2#Y&dpW2-Egd@Fdf5G@Dheeu*|v(bMFD;1sQ1"
))


def _parity_signs() -> NDArray[np.uint8]:
    """Sign masks (128,) by their low 7 bits: the eighth bit makes the number of minus signs even."""
    masks = np.arange(128, dtype=np.uint8)
    parity: NDArray[np.uint8] = np.bitwise_xor.reduce(np.unpackbits(masks[:, None], axis=-1), axis=-1)
    return masks | parity << np.uint8(7)


EVEN_SIGNS = _parity_signs()

# (256, 8): the eight factors +1 or -1 of a sign mask, lowest bit first, set bits being minus
_MASK_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=-1, bitorder="little")
_FACTORS = np.where(_MASK_BITS, np.int8(-1), np.int8(1))


def grid_points(grid: NDArray[np.int8], index: NDArray[Any], sign_masks: NDArray[np.uint8]) -> NDArray[np.int8]:
    """Weights (..., n) from indices (..., n / width) into `grid` (n_points, width) and sign masks (..., n / 8)."""
    q = np.take(_FACTORS, sign_masks, axis=0)
    q = q.reshape(*index.shape, grid.shape[-1])
    q *= np.take(grid, index, axis=0)
    return q.reshape(*index.shape[:-1], -1)
