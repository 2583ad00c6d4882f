package reconcile

import "github.com/greylag/greylag/pkg/cluster"

// Next returns the action for one recorded task by the table below. informed reports that a set was
// admitted; w is nil if that set does not want the task.
//
//	phase     wanted        to stop            not wanted       no set yet
//	Accepted  start         abandon, remove    abandon, remove  -
//	Started   signals       stop, later kill   stop, later kill kill after the grace period
//	Ended     remove, or -  remove             remove           remove, or -
//	Clean     -             -                  forget           -
//
// An ended task with files to copy waits until the controllers have decided whether they are copied.
//
// A running task that is not wanted is superseded: its node was DOWN, and the next attempt of its
// job may be running. It has SupersededWait to end, regardless of kill_wait.
func Next(informed bool, w *Wanted, s *Seen, now cluster.Instant) (action Action, wake cluster.Instant) {
	over := s.Doomed || informed && (w == nil || w.Stop)
	switch {
	case s.Work == Starting && over:
		return Action{Kind: Abandon, ID: s.ID}, 0
	case s.Work != NoWork:
		return Action{}, 0
	case s.Phase == Clean:
		if informed && w == nil {
			return Action{Kind: Forget, ID: s.ID}, 0
		}
		return Action{}, 0
	case s.Phase == Started:
		return running(informed, w, s, now)
	case now < s.NotBefore:
		return Action{}, s.NotBefore
	case s.Phase == Ended && s.CopiesOut && (!informed || w != nil && !w.Stop):
		return Action{}, 0
	case s.Phase == Ended, over:
		return Action{Kind: Remove, ID: s.ID}, 0
	case informed:
		return Action{Kind: Start, ID: s.ID}, 0
	}
	return Action{}, 0
}

// running is the row of a task whose process runs.
func running(informed bool, w *Wanted, s *Seen, now cluster.Instant) (Action, cluster.Instant) {
	switch {
	case s.Doomed, s.KillAt != 0 && now >= s.KillAt:
		if again := s.Killed.Add(KillAgain); s.Killed != 0 && now < again {
			return Action{}, again
		}
		return Action{Kind: Kill, ID: s.ID}, 0
	case informed && w == nil && (s.KillAt == 0 || s.KillAt > now.Add(SupersededWait)):
		return Action{Kind: Stop, ID: s.ID, KillAt: now.Add(SupersededWait)}, 0
	case s.KillAt != 0:
		return Action{}, s.KillAt
	case w == nil:
		return Action{}, 0
	case w.Stop:
		return Action{Kind: Stop, ID: s.ID, KillAt: now.Add(max(w.KillWait, 0))}, 0
	}
	for _, signal := range w.Signals {
		if signal.ID > s.Signalled {
			return Action{Kind: Deliver, ID: s.ID, Signal: signal}, 0
		}
	}
	return periodicSignal(w, s, now)
}

// periodicSignal sends the periodic signal of a running task if it is due, and returns when it is due next. From a change of
// From or the start of the process on, the periods begin again.
func periodicSignal(w *Wanted, s *Seen, now cluster.Instant) (Action, cluster.Instant) {
	if w.Every <= 0 {
		return Action{}, 0
	}
	from := max(w.From, s.Started)
	passed := max(now.Sub(from), 0) / w.Every
	if due := from.Add(passed * w.Every); passed > 0 && due > s.Periodic {
		signal := w.Periodic
		signal.ID = PeriodicID | uint64(due)
		return Action{Kind: Deliver, ID: s.ID, Signal: signal}, 0
	}
	return Action{}, from.Add((passed + 1) * w.Every)
}
