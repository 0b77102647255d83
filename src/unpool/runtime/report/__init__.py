"""One page about one model: plan, times, accuracy, findings, memory, feature maps and window arithmetic."""
