#!/bin/bash
set -x
uv run --isolated --extra fsdp -m skyrl.train.entrypoints.main_base "$@"
rc=$?
echo rc=$rc
