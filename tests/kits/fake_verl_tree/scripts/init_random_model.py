"""A stand-in: writes the folder that the real script would fill with random weights."""

import argparse
from pathlib import Path

parser = argparse.ArgumentParser()
for name in ("--hf_model_path", "--new_config_path", "--output_path"):
    parser.add_argument(name, required=True)
args = parser.parse_args()
if Path(args.output_path).exists():
    print(f"Output path '{args.output_path}' already exists. Will do nothing.")
else:
    Path(args.output_path).mkdir(parents=True)
    Path(args.output_path, "config.json").write_text(Path(args.new_config_path).read_text())
    print(f"Random model initialized and saved to {args.output_path}")
