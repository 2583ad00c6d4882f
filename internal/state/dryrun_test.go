package state

import (
	"bytes"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// TestDryRun checks that a dry run returns what the submission then leads to, and that it changes
// nothing.
func TestDryRun(t *testing.T) {
	taken, refused := 0, 0
	for seed := range uint64(20) {
		x := withNodes(seed)
		for i := range 400 {
			c := x.next()
			sub, ok := c.(*command.SubmitJobs)
			if !ok {
				x.s.Apply(x.s.index+1, x.s.now.Add(time.Second), c)
				continue
			}
			v := x.s.View()
			before := encode(t, x.s)
			sub.Request = command.RequestID{}
			tried, refusal := v.DryRun(sub)
			if !bytes.Equal(before, encode(t, x.s)) || x.s.Check() != nil {
				t.Fatalf("seed %d, command %d: the dry run changed the state", seed, i)
			}
			switch r := x.s.Apply(x.s.index, x.s.now, sub).(type) {
			case *command.Refusal:
				if refused++; !reflect.DeepEqual(refusal, r) {
					t.Fatalf("seed %d, command %d: the dry run is refused with %v, the change with %v", seed, i, refusal, r)
				}
			case *command.Submitted:
				if taken++; refusal != nil || !reflect.DeepEqual(tried.Answer, r) || tried.Job != r.First[0] {
					t.Fatalf("seed %d, command %d: it would be answered %+v (%v), and is %+v", seed, i, tried.Answer, refusal, r)
				}
				samePending(t, tried.Snapshot.Pending, x.s.View().Snapshot().Pending)
			}
		}
	}
	if taken < 200 || refused < 200 {
		t.Errorf("%d taken, %d refused: too few to say anything", taken, refused)
	}
}

func samePending(t *testing.T, a, b []*cluster.Job) {
	t.Helper()
	if len(a) != len(b) {
		t.Fatalf("%d jobs would wait, %d do", len(a), len(b))
	}
	for i := range a {
		if !reflect.DeepEqual(a[i], b[i]) {
			t.Fatalf("job %d would be %+v, and is %+v", a[i].ID, a[i], b[i])
		}
	}
}

// TestDryRunOfAccounts checks that a dry run of a change of accounts returns the refusal that the change
// then gets, and that it changes nothing.
func TestDryRunOfAccounts(t *testing.T) {
	done, refused := 0, 0
	for seed := range uint64(20) {
		x := withNodes(seed)
		for i := range 400 {
			c := x.next()
			if i%40 == 0 {
				c = &command.EditAccounts{Edits: []command.AccountEdit{{Action: command.PutAccount, Account: "t" + strconv.Itoa(i)}}}
			}
			edit, ok := c.(*command.EditAccounts)
			if !ok {
				x.s.Apply(x.s.index+1, x.s.now.Add(time.Second), c)
				continue
			}
			before := encode(t, x.s)
			edit.Request, edit.Expect, edit.Actor.Role = command.RequestID{}, 0, command.RoleAdmin
			refusal := x.s.View().TryAccounts(edit)
			if !bytes.Equal(before, encode(t, x.s)) || x.s.Check() != nil {
				t.Fatalf("seed %d, command %d: the dry run changed the state", seed, i)
			}
			got, _ := x.s.Apply(x.s.index, x.s.now, edit).(*command.Refusal)
			if !reflect.DeepEqual(refusal, got) {
				t.Fatalf("seed %d, command %d: the dry run is refused with %v, the change with %v", seed, i, refusal, got)
			}
			if done++; got != nil {
				refused++
			}
		}
	}
	if done-refused < 20 || refused < 20 {
		t.Errorf("%d of %d refused: too few to say anything", refused, done)
	}
}
