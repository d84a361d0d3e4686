"""The programs that `shardlens check-gpu` records on a GPU and on a simulated one."""
