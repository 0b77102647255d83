"""What tests share: models, networks, runners, probes that run in processes of their own."""
