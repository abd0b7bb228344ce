"""HTTP routes: one module a resource. They read requests and write answers, nothing else."""
