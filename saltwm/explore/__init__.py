"""The explorer: a local page that shows what a world model thinks, live.

folders.py     what may be shown, each thing under a name
messages.py    what the page may ask: a closed table of bounded records
server.py      the page and its one socket, for this machine alone
link.py        the one worker process: watched, started again when it dies
worker.py      that process: a request in, an answer out, nothing remembered but caches
desk.py        those caches: models, environments, datasets, galleries
acting.py imagining.py browsing.py recorded.py   the answers, by view
scenes.py      what of an environment's state can be moved by hand
pages/         the page itself: plain ES modules, no build step
"""
