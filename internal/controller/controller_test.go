package controller

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/raftlog"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/pkg/cluster"
)

func TestJobsStartEndAndAreArchived(t *testing.T) {
	r := newRig(t, t.TempDir(), true)
	epoch := r.node("n1", 2)
	script := []byte("#!/bin/sh\n")
	ids := []cluster.JobID{}
	for range 3 {
		spec := cluster.JobSpec{Name: "j", Owner: ada.Identity, WorkDir: "/", TimeLimit: time.Hour, Script: sha256.Sum256(script),
			Request: cluster.Request{Nodes: 1, GPUsPerNode: 1}}
		ids = append(ids, r.do(&command.SubmitJobs{Actor: ada, Jobs: []command.Submission{{Spec: spec}}, Blobs: [][]byte{script}}).(*command.Submitted).First[0])
	}
	r.untilState(ids[0], cluster.Configuring)
	r.untilState(ids[1], cluster.Configuring)
	r.until("the third knows why it waits", func() bool { return r.job(ids[2]).Reason == cluster.ReasonResources })
	if j := r.job(ids[2]); j.Planned == 0 || j.Detail != "needs 1 GPU on one node" {
		t.Fatalf("job 3: planned %v, %q", j.Planned, j.Detail)
	}
	r.finish("n1", epoch)
	r.untilState(ids[0], cluster.Completed)
	r.untilState(ids[2], cluster.Configuring)
	r.check()
	record, ok, err := r.archive.Job(ids[0])
	if err != nil || !ok || record.User != "ada" {
		t.Fatalf("archived %+v %v %v", record, ok, err)
	}
	job, err := command.DecodeJob(record.Data)
	if err != nil || job.State != cluster.Completed {
		t.Fatalf("archived %+v %v", job, err)
	}
	content, ok, err := r.archive.Blob(sha256.Sum256(script))
	if err != nil || !ok || string(content) != string(script) {
		t.Fatalf("script %q %v %v", content, ok, err)
	}
}

func TestTimeLimitFallsDueByATick(t *testing.T) {
	r := newRig(t, t.TempDir(), true)
	r.node("n1", 1)
	id := r.submit(func(s *cluster.JobSpec) { s.TimeLimit = 300 * time.Millisecond })
	r.untilState(id, cluster.Completing)
	if j := r.job(id); j.Outcome != cluster.TimedOut {
		t.Fatalf("outcome %s", j.Outcome)
	}
	after := func(d time.Duration) cluster.JobID {
		return r.submit(func(s *cluster.JobSpec) { s.Begin = cluster.InstantOf(time.Now().Add(d)) })
	}
	begins, later := after(1500*time.Millisecond), after(time.Hour)
	r.node("n2", 1)
	r.until("it says that it waits for its time", func() bool { return r.job(later).Reason == cluster.ReasonBeginTime })
	r.untilState(begins, cluster.Configuring)
	if j := r.job(begins); j.Started < j.Spec.Begin {
		t.Fatalf("started %s before its time", j.Spec.Begin.Sub(j.Started))
	}
	r.check()
}

func TestStateSurvivesARestartAndASnapshot(t *testing.T) {
	dir := t.TempDir()
	r := newRig(t, dir, true)
	epoch := r.node("n1", 4)
	first := r.submit(nil)
	r.untilState(first, cluster.Configuring)
	r.finish("n1", epoch)
	r.untilState(first, cluster.Completed)
	must(t, r.log.SnapshotNow(context.Background()))
	second := r.submit(nil)
	r.untilState(second, cluster.Configuring)
	r.stop() // first, since the loops may commit more
	digest := r.replica.View().Digest()
	again := newRig(t, dir, false)
	if got := again.replica.View().Digest(); got != digest {
		t.Fatalf("digest %x, was %x", got, digest)
	}
	again.check()
	if again.job(second).State != cluster.Configuring || again.job(first).State != cluster.Completed {
		t.Fatal("jobs are not as they were")
	}
	gaps, err := again.archive.Gaps()
	if err != nil || len(gaps) != 0 {
		t.Fatal(gaps, err)
	}
}

func TestLoopsEndWithLeadership(t *testing.T) {
	r := newRig(t, t.TempDir(), true)
	ctx, leads := r.Leading()
	if !leads {
		t.Fatal("not leading")
	}
	must(t, r.log.Close())
	select {
	case <-ctx.Done():
	case <-time.After(patience):
		t.Fatal("the term goes on")
	}
	r.until("it no longer leads", func() bool { _, leads := r.Leading(); return !leads })
	if _, _, err := r.Propose(context.Background(), &command.Tick{}); !errors.Is(err, raftlog.ErrClosed) && !errors.Is(err, raftlog.ErrNotLeader) {
		t.Fatalf("propose: %v", err)
	}
	if _, err := r.ReadView(context.Background()); err == nil {
		t.Fatal("read a view of a closed log")
	}
}

func TestGarbageIsRefusedNotFatal(t *testing.T) {
	r := newRig(t, t.TempDir(), false)
	for _, data := range [][]byte{nil, {0}, {1, 2, 'g', 'a', 'r', 'b'}, {255, 255, 255, 255, 255, 255}} {
		result, _, err := r.log.Propose(context.Background(), data)
		if refusal, ok := result.(*command.Refusal); err != nil || !ok || refusal.Code != command.InvalidArgument {
			t.Fatalf("%x answers %v, %v", data, result, err)
		}
	}
}

func TestSubscriptions(t *testing.T) {
	r := newRig(t, t.TempDir(), true)
	all, one, other := r.replica.Subscribe(), r.replica.SubscribeNode("n1"), r.replica.SubscribeNode("n9")
	defer all.Close()
	defer one.Close()
	r.node("n1", 1)
	id := r.submit(nil)
	started := func(changes []state.Change) bool {
		return slices.ContainsFunc(changes, func(c state.Change) bool {
			return c.Job == id && c.New != nil && c.New.State == cluster.Configuring
		})
	}
	changes := changesOf(t, all, started)
	if !slices.ContainsFunc(changes, func(c state.Change) bool { return c.Kind == state.NodeChanged && c.Node == "n1" }) {
		t.Fatalf("the node is not among %+v", changes)
	}
	changesOf(t, one, started)
	if changes, resync := other.Take(); len(changes) > 0 || resync {
		t.Fatalf("another node received %+v", changes)
	}
	other.Close()
	if n := len(r.replica.hub.byNode); n != 1 {
		t.Fatalf("%d nodes are followed", n)
	}
	r.replica.hub.resync()
	<-all.C()
	if _, resync := all.Take(); !resync {
		t.Fatal("no request to reload everything")
	}
}

func TestSlowSubscriberReloadsEverything(t *testing.T) {
	var h hub
	s := h.subscribe("", nil)
	job := &cluster.Job{}
	publish := func(n int) {
		for i := range n {
			h.publish([]state.Change{{Kind: state.JobChanged, Job: cluster.JobID(i), New: job}})
		}
	}
	publish(maxChanges)
	publish(maxChanges) // repeated changes are merged
	if changes, resync := s.Take(); len(changes) != maxChanges || resync {
		t.Fatal(len(changes), resync)
	}
	publish(maxChanges + 1)
	if changes, resync := s.Take(); len(changes) != 0 || !resync {
		t.Fatal(len(changes), resync)
	}
}

func TestPlanIsCutIntoPieces(t *testing.T) {
	plan := cluster.Plan{Index: 7}
	for i := range 600 {
		plan.Starts = append(plan.Starts, cluster.PlannedStart{Job: cluster.JobID(i)})
	}
	for i := range 5000 {
		plan.Verdicts = append(plan.Verdicts, cluster.Verdict{Job: cluster.JobID(i), Detail: fmt.Sprintf("%200d", i)})
	}
	starts, verdicts, bytes := 0, 0, 0
	for len(plan.Starts)+len(plan.Verdicts) > 0 {
		piece := cut(&plan)
		if len(piece.Starts) > chunkStarts || len(piece.Verdicts) > chunkVerdicts || piece.Index != 7 {
			t.Fatalf("piece of %d starts, %d verdicts", len(piece.Starts), len(piece.Verdicts))
		}
		bytes = max(bytes, len(command.Encode(&command.CommitPlan{Plan: piece})))
		starts, verdicts = starts+len(piece.Starts), verdicts+len(piece.Verdicts)
	}
	if starts != 600 || verdicts != 5000 || bytes > raftlog.MaxEntryBytes {
		t.Fatal(starts, verdicts, bytes)
	}
}
