"""An inventory: parent of the hosts of one shard."""
