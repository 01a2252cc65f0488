"""What followers' fetch sessions tell the leader of who keeps up, without touching entries that have no news.

A follower that lists nothing is in step with the log end wherever its entry says so; it is looked at when that ends.
Of several entries of one follower for one partition, in different sessions, only the one listed last speaks for it:
a late copy of an old request must not count for ever.
"""

from headrace.core.fetch_entries import Entry, Replica
from headrace.core.leading import FollowerState


def spoken_for(entry: Entry) -> FollowerState | None:
    """The follower for which this entry speaks."""
    replica = entry.replica
    if replica is None or replica.leadership is None:
        return None
    follower = replica.leadership.followers.get(entry.session.fetcher.replica_id)
    return follower if follower is not None and follower.entry is entry else None


def about_to_ask(entry: Entry) -> None:
    follower = spoken_for(entry)
    if follower is not None:
        follower.leave_step()


def listed(entry: Entry, now_ms: int) -> Replica | None:
    """A request listed the entry, and it was judged. The replica, if its leader keeps account of this follower."""
    session, replica = entry.session, entry.replica
    session.lost.pop(entry, None)
    if replica is None or replica.leadership is None:
        return None
    follower = replica.leadership.followers.get(session.fetcher.replica_id)
    if follower is None:
        return None
    silenced = follower.speak_through(entry)
    if silenced is not None and silenced.session is not session:
        silenced.session.lost[silenced] = None
    if entry.fault is None:
        follower.listed(replica.log_end_offset, now_ms, session.fetcher.broker_epoch)
    return replica


def looked_at(entry: Entry) -> None:
    """After any change of the entry or of the log behind it."""
    follower = spoken_for(entry)
    if follower is not None and entry.replica is not None:
        follower.looked_at(entry.replica.log_end_offset)


def healed(entry: Entry) -> None:
    follower = spoken_for(entry)
    if follower is not None:
        follower.healed()


def records_sent(entry: Entry) -> None:
    follower = spoken_for(entry)
    if follower is not None and entry.replica is not None:
        follower.records_sent(entry.replica.log_end_offset)


def released(entry: Entry) -> None:
    """The entry, or its session, is about to go, or its partition is."""
    entry.session.lost.pop(entry, None)
    follower = spoken_for(entry)
    if follower is not None:
        follower.release()
