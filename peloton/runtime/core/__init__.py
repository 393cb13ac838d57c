"""The pure core of the runtime. It must never wait, read a clock, or import a shell."""
