"""The contenders. Each module has `prepare(job) -> run`: what is paid once per process, and the run that is measured.

`job` is a `bench.job.Job`. Nothing here is imported by the command itself, only by the child that runs it.
"""
