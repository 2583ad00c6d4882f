package controller

import (
	"testing"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// TestALostNodeIsPaidForAsLongAsItCounted runs a job of two nodes for an hour, restarts a daemon,
// changes the leader and loses a node. The charge covers what both nodes counted, not the time
// until the loss was noticed.
func TestALostNodeIsPaidForAsLongAsItCounted(t *testing.T) {
	simulate(t, func(r *rig, log *soloLog) {
		p := cluster.DefaultPolicy()
		p.Credits.On, p.Credits.FaultRefund = true, 0
		root := command.Actor{Identity: cluster.Identity{User: "root"}, Role: command.RoleAdmin}
		r.do(&command.ApplyPolicy{Actor: root, Policy: p})
		r.do(&command.ChangeCredits{Actor: root, Action: command.SetPrice, GPUType: "h100", Amount: accounting.One})
		r.do(&command.ChangeCredits{Actor: root, Action: command.GrantCredits, Account: "ml", Class: accounting.Purchase, Amount: 100 * accounting.One})
		r.node("n1", 1)
		r.node("n2", 1)
		id := r.submit(func(s *cluster.JobSpec) {
			s.Account, s.TimeLimit, s.Request.Nodes = "ml", 5*time.Hour, 2
		})
		time.Sleep(time.Second)
		began := time.Now()
		counts := map[string]time.Time{"n1": began, "n2": began}
		for i := range 360 {
			time.Sleep(Heartbeat)
			if i == 100 {
				counts["n1"] = time.Now() // its daemon restarted
			}
			if i == 200 {
				log.leads <- false
				log.leads <- true
				time.Sleep(time.Millisecond)
			}
			for name, since := range counts {
				n, _ := r.replica.View().Node(name)
				r.RecordHeartbeat(name, n.Epoch)
				r.Ran(name, uint64(since.UnixNano()), id, 1, time.Since(since), false)
			}
		}
		counted := time.Since(began)
		time.Sleep(10 * time.Minute)
		lien, known := r.replica.View().Credits().Lien(accounting.LienID{Job: id, Attempt: 1})
		most := accounting.Cost(accounting.One, accounting.Millis(2, counted))
		least := accounting.Cost(accounting.One, accounting.Millis(2, counted-2*meterSpacing-2*Heartbeat))
		if !known || lien.State == accounting.Open || lien.Paid() > most || lien.Paid() < least {
			t.Errorf("%v, %s, paid %s, want %s to %s", known, lien.State, lien.Paid(), least, most)
		}
		r.check()
	})
}

// TestAnEndIsCountedOnce checks that a node's count of a task that ended while the node was cut off
// is not added to earlier counts of the task, of any daemon or leader.
func TestAnEndIsCountedOnce(t *testing.T) {
	for _, another := range []string{"daemon", "leader"} {
		simulate(t, func(r *rig, log *soloLog) {
			p := cluster.DefaultPolicy()
			p.Credits.On, p.NodeTimeout = true, 24*time.Hour
			root := command.Actor{Identity: cluster.Identity{User: "root"}, Role: command.RoleAdmin}
			r.do(&command.ApplyPolicy{Actor: root, Policy: p})
			r.do(&command.ChangeCredits{Actor: root, Action: command.SetPrice, GPUType: "h100", Amount: accounting.One})
			r.do(&command.ChangeCredits{Actor: root, Action: command.GrantCredits, Account: "ml", Class: accounting.Purchase, Amount: 100 * accounting.One})
			epoch := r.node("n1", 1)
			id := r.submit(func(s *cluster.JobSpec) { s.Account, s.TimeLimit = "ml", 20*time.Hour })
			r.untilState(id, cluster.Configuring)
			began := time.Now()
			task := command.TaskReport{Job: id, Attempt: 1, Task: cluster.Task{Phase: cluster.TaskStarted, Started: cluster.InstantOf(began)}}
			tell := func() {
				r.do(&command.ReportTasks{Node: "n1", Epoch: epoch, Tasks: []command.TaskReport{task}})
			}
			tell()
			counting := uint64(1)
			for range 360 {
				time.Sleep(Heartbeat)
				r.RecordHeartbeat("n1", epoch)
				r.Ran("n1", counting, id, 1, time.Since(began), false)
			}
			time.Sleep(6 * time.Hour) // it is cut off, and the task ends after an hour
			if another == "daemon" {
				counting++
			} else {
				log.leads <- false
				log.leads <- true
				time.Sleep(3 * time.Hour)
			}
			task.Ran = 2 * time.Hour
			task.Task.Phase, task.Task.Cause = cluster.TaskEnded, cluster.Exited
			task.Task.Ended = task.Task.Started.Add(task.Ran)
			for range 12 { // until the end of the epilog
				r.RecordHeartbeat("n1", epoch)
				r.Ran("n1", counting, id, 1, task.Ran, true)
				tell()
				time.Sleep(Heartbeat)
			}
			task.Task.Phase = cluster.TaskClean
			tell()
			lien, _ := r.replica.View().Credits().Lien(accounting.LienID{Job: id, Attempt: 1})
			if lien.State != accounting.Settled || lien.Paid() != 2*accounting.One {
				t.Errorf("another %s: %s, paid %s", another, lien.State, lien.Paid())
			}
			r.check()
		})
	}
}
