package raftlog

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestStatusShowsSilentMembers checks that the leader's status shows which controller is down, and
// how far each has come.
func TestStatusShowsSilentMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, nil)
		defer f.close()
		f.grow(3)
		f.propose("x")
		leader, followers := f.leader(), f.followers()
		gone, there := followers[0], followers[1]
		f.until("all heard", func() bool {
			contacts := leader.Status().Contacts
			return len(contacts) == 2 && contacts[gone.self.ID].LastIndex == leader.Status().LastIndex
		})
		if n := len(there.Status().Contacts); n != 0 {
			t.Errorf("a follower hears %d members", n)
		}
		f.isolate(gone, true)
		time.Sleep(time.Minute)
		contacts := leader.Status().Contacts
		if silent := time.Since(contacts[gone.self.ID].At); silent < 50*time.Second {
			t.Errorf("a member that is gone was heard %s ago", silent)
		}
		if silent := time.Since(contacts[there.self.ID].At); silent > time.Second {
			t.Errorf("a member that is there was heard %s ago", silent)
		}
	})
}
