"""The keeper as an executor of Mesos: the program on an agent that runs our batch tasks there.

One process for all tasks of an agent, instead of one of Mesos' own for each. It starts, watches and
ends them by the parts of `backends/keeper`, and speaks the v1 executor API with its agent. It may
import nothing but the standard library and the keeper: agents have no more.

    __main__   the start
    guardian   the process that the agent knows: what is left of a killed executor ends with it
    secret_folders  where the files of secrets lie, and how those of a killed executor are found
    talk       what is heard, and what it makes us say and do
    loop       processes, sockets and times, on one thread
    agent_link the two connections to the agent
    http_pieces  bytes of answers, as answers and events
"""
