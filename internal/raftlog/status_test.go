package raftlog

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestStatusTellsWhoIsSilent: an administrator sees on the leader which controller
// is down, and how far each has come.
func TestStatusTellsWhoIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, nil)
		defer f.close()
		f.grow(3)
		f.propose("x")
		leader, followers := f.leader(), f.followers()
		gone, there := followers[0], followers[1]
		f.until("all heard", func() bool {
			heard := leader.Status().Heard
			return len(heard) == 2 && heard[gone.self.ID].LastIndex == leader.Status().LastIndex
		})
		if n := len(there.Status().Heard); n != 0 {
			t.Errorf("a follower hears %d members", n)
		}
		f.isolate(gone, true)
		time.Sleep(time.Minute)
		heard := leader.Status().Heard
		if silent := time.Since(heard[gone.self.ID].At); silent < 50*time.Second {
			t.Errorf("a member that is gone was heard %s ago", silent)
		}
		if silent := time.Since(heard[there.self.ID].At); silent > time.Second {
			t.Errorf("a member that is there was heard %s ago", silent)
		}
	})
}
