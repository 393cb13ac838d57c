"""Words of the wire and words of the actors: specs, configs, states, keys, ids, texts.

All pure: of a message a value, of a value a message, or the field that is wrong. It must not read a
cluster or a clock. A field that both generations have is translated here, once.
"""
