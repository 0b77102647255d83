"""Which methods and options of onnxruntime unpool has: both are asked, and docs/onnxruntime.md is written from it."""
