import sys
from peloton.chaos.cluster.storm import draw, play, StormFailed
from tests.worlds.planted import PLANTED, planted
WANT = {"a hold is acknowledged and forgotten": "hold host", "a hold that was used is used again": "hold host", "holds have no end": "hold host",
 "a throttle counts no starts": "create throttled", "a moment comes again": "create schedule", "a moment is forgotten": "create schedule",
 "an end is not told": "create notifying", "an end is told that was none": "create notifying", "a host forgets its pool": "move host", "controllers have no limit": "limit controllers"}
plans = {s: draw(s) for s in range(80000, 80250)}
for name, action in WANT.items():
    found = None
    tried = 0
    with planted(PLANTED[name]):
        for s, plan in plans.items():
            if not any(a.name == action for a in plan.actions): continue
            tried += 1
            if tried > 25: break
            try: play(plan)
            except StormFailed as e:
                text = str(e).splitlines()[0][:150]
                if found is None: found = (s, text)
                if "Contradiction R2" in e.sort and e.sort[-2:] in ("22","23","24","25","26"):
                    found = (s, text); break
    print(name, tried, found, flush=True)
