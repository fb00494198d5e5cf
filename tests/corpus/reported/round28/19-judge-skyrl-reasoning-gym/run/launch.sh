#!/bin/bash
# one H100
set -x
uv run --isolated --extra vllm -m examples.reasoning_gym.main_reasoning_gym "$@" 2>&1 | tee console.log
