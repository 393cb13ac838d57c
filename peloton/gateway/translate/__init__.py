"""Translation between the wire and the actors: specs, configs, states, keys, ids, texts.

All pure: a message becomes a value, a value a message, or the wrong field is named. A field that
both API versions have is translated here, once.
"""
