"""Makes the quantised variants of a model that vs_llama_cpp.py --requants measures, with llama.cpp's own quantiser.

    python bench/requantise.py MODEL DIR --peer-bin DIR [--types Q8_0,Q6_K,...]

Both engines then read the same files. Quantising what is quantised already costs quality but not speed. Files that are
there are kept.
"""

import argparse
import subprocess
from pathlib import Path

TYPES = ("Q8_0", "Q6_K", "Q5_K_M", "Q4_0", "Q3_K_M", "Q2_K", "IQ4_XS")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--peer-bin", type=Path, required=True, metavar="DIR", help="folder of llama-quantize")
    parser.add_argument("--types", default=",".join(TYPES), help=f"default: {','.join(TYPES)}")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    for kind in args.types.split(","):
        file = args.folder / f"{args.model.stem}-{kind}.gguf"
        if file.exists():
            continue
        part = file.with_suffix(".part")        # no folder is ever left with half a model
        command = [args.peer_bin / "llama-quantize", "--allow-requantize", args.model, part, kind]
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if result.returncode != 0:
            part.unlink(missing_ok=True)
            raise SystemExit(f"llama-quantize ended with code {result.returncode}: {result.stdout[-2000:]}")
        part.rename(file)
        print(f"{file} ({file.stat().st_size / 1e6:,.0f} MB)", flush=True)


if __name__ == "__main__":
    main()
