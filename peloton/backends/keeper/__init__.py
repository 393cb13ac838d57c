"""The keeper: a small program that starts, watches and reaps real tasks and outlives the daemon.

Launches and kills read from a Unix socket become process groups, and their ends records that are
safe on disk before they are reported. The keeper must use nothing but the standard library and
import nothing of the package around it: it runs for as long as the longest task, so it must start
fast, stay small, and never depend on what an upgrade of the package replaces.

    __main__   arguments, detaching
    supervisor the program above, which keeps what a killed keeper would have been told; supervised:
               the keeper's side of it
    keeping    the lock, the recovery, the loop
    service    sockets and the loop; wakeups: what signals do to it
    runs       every run from its launch to its acknowledged end
    adoption   what a successor makes of a killed keeper's runs
    kinds      the records: runs, ends, the reasons of an end
    journal    the durable lines
    disk       the calls to its files
    identity   who the keeper is, and which cluster it serves
    processes  spawning, /proc, signals
    watch      periodic checks
    limits     what a run may use: its control group, its end
    groups     control groups of both versions; group_roots: where they may be made
    disk_use   which live runs use too much disk; sizes: how large folders are
    programs   what is executed for a run
    containers runs that are containers; engine: the words of podman and docker; container_run: the
               program that watches one
    pods       runs of several containers; pod_run: the program that watches those of one
    requests   requests for runs, checked
    secret_files  secrets of runs: files that go with the run
    ends       the reason of an end
    stops      graces and run limits: when runs are told to end, and killed
    sandboxes  the folders of the runs; kept: which of them stay; removed: which were removed
    volumes    the directories of volumes, which outlive runs
    wire       lines of JSON, and of pipes
"""
