"""How masters and agents of Mesos are found and spoken to: elections, the stream, calls.

It carries what is said and heard, and knows no run and no host: whoever leads, wherever an
agent listens, what is said arrives there, or an error says why. Every connection to Mesos is
made from here. It must not import `runs`, nor what stands beside the two.
"""
