package controller

import (
	"bytes"
	"context"
	"crypto/sha256"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/greylag/greylag/internal/archive"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// soloLog commits at once: a log for simulated time, in which a real one would wait for disks.
type soloLog struct {
	replica *Replica
	leads   chan bool
	took    time.Duration // duration of each entry

	turn    chan struct{} // a lock known to simulated time, which does not advance while a goroutine waits for a mutex
	index   uint64
	entries map[string]int // entries by command type
	other   atomic.Bool    // a member runs another version
}

func (l *soloLog) ProposeMany(_ context.Context, commands [][]byte) ([]any, uint64, error) {
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	time.Sleep(l.took)
	l.index++
	for _, data := range commands {
		if c, err := command.Decode(data); err == nil {
			switch c := c.(type) {
			case *command.CommitPlan:
				l.entries["starts"] += min(len(c.Plan.Starts), 1)
				l.entries["verdicts"] += min(len(c.Plan.Verdicts), 1)
			case *command.Tick:
				l.entries["ticks"]++
			}
		}
	}
	return l.replica.Apply(l.index, time.Now().UnixNano(), commands), l.index, nil
}

// count is how many entries of a kind there were.
func (l *soloLog) count(kind string) int {
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	return l.entries[kind]
}

func (l *soloLog) ReadIndex(context.Context) (uint64, error) { return l.index, nil }

func (l *soloLog) Leadership() <-chan bool { return l.leads }

// AllCompatible waits for a member that does not answer.
func (l *soloLog) AllCompatible(ctx context.Context) bool {
	if !l.other.Load() {
		return true
	}
	select {
	case <-time.After(2 * time.Second):
	case <-ctx.Done():
	}
	return false
}

// discard is an archive without storage.
type discard struct{}

func (discard) Append(uint64, []archive.Record, []archive.Blob) error { return nil }
func (discard) Amend(uint64, []archive.Record) error                  { return nil }
func (discard) Expect(uint64) error                                   { return nil }
func (discard) StartAt(uint64) error                                  { return nil }
func (discard) StartRowsAt(archive.Journal, uint64) error             { return nil }
func (discard) ExpectRows(archive.Journal, uint64) error              { return nil }
func (discard) AppendRows(uint64, archive.Journal, []archive.Row) error {
	return nil
}
func (discard) Sync() error { return nil }

// simulate runs f against a leading controller in simulated time.
func simulate(t *testing.T, f func(*rig, *soloLog)) {
	t.Helper()
	simulated(t, accounting.Form, f)
}

// simulated is simulate, where this version writes a form of the journal that another member
// does not know, unless that is the first.
func simulated(t *testing.T, newest uint8, f func(*rig, *soloLog)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		replica := NewReplica(discard{}, slog.New(slog.DiscardHandler))
		replica.newest = newest
		log := &soloLog{replica: replica, leads: make(chan bool, 1), turn: make(chan struct{}, 1), took: time.Millisecond, entries: map[string]int{}}
		r := &rig{t: t, replica: replica}
		r.Controller = New(Config{
			Observer: r, Replica: replica, Log: log, Logger: slog.New(slog.DiscardHandler), ClusterID: "solo", Policy: cluster.DefaultPolicy(),
		})
		log.other.Store(newest > 1)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); r.Run(ctx) }()
		log.leads <- true
		synctest.Wait()
		time.Sleep(time.Second)
		f(r, log)
		cancel()
		<-ended // every loop has ended, otherwise synctest reports the goroutine
	})
}

// stayInTouch sends heartbeats of a node until stop is called.
func (r *rig) stayInTouch(name string) (stop func()) {
	stopped := make(chan struct{})
	go func() {
		for {
			select {
			case <-time.After(Heartbeat):
				n, _ := r.replica.View().Node(name)
				r.RecordHeartbeat(name, n.Epoch)
			case <-stopped:
				return
			}
		}
	}()
	return func() { close(stopped) }
}

func TestOneBurstOneCommit(t *testing.T) {
	simulate(t, func(r *rig, log *soloLog) {
		r.node("n1", 8)
		defer r.stayInTouch("n1")()
		time.Sleep(time.Minute)
		log.took = 0
		before, ticks := r.passes.Load(), log.count("ticks") // one, of a leader that comes, agrees on the journal's form
		for range 500 {
			r.submit(nil)
		}
		time.Sleep(50 * time.Millisecond)
		if starts, passes := r.starts.Load(), r.passes.Load()-before; starts != 8 || passes > 4 || log.count("starts") != 1 {
			t.Errorf("%d starts in %d passes, %d commands", starts, passes, log.count("starts"))
		}
		time.Sleep(3 * time.Second)
		settled := r.passes.Load()
		time.Sleep(20 * time.Minute)
		if got := r.passes.Load(); got != settled {
			t.Errorf("%d passes though nothing changed", got-settled)
		}
		if log.count("verdicts") == 0 || log.count("verdicts") > 3 {
			t.Errorf("count verdicts %d times", log.count("verdicts"))
		}
		if n := log.count("ticks") - ticks; n != 0 {
			t.Errorf("%d ticks though nothing was due", n)
		}
	})
}

func TestTimePassesOnlyWhenSomethingIsDue(t *testing.T) {
	simulate(t, func(r *rig, log *soloLog) {
		r.node("n1", 8)
		defer r.stayInTouch("n1")()
		id := r.submit(nil)
		later := r.submit(func(s *cluster.JobSpec) { s.Begin = cluster.InstantOf(time.Now().Add(20 * time.Minute)) })
		time.Sleep(10 * time.Second)
		if r.job(id).State != cluster.Configuring || r.job(later).State != cluster.Pending {
			t.Errorf("%s %s", r.job(id).State, r.job(later).State)
		}
		time.Sleep(20*time.Minute - 9*time.Second)
		if r.job(later).State != cluster.Configuring {
			t.Errorf("the later job is %s %s", r.job(later).State, r.job(later).Reason)
		}
		time.Sleep(40 * time.Minute)
		if j := r.job(id); j.State != cluster.Completing || j.Ended.Sub(j.Started) > time.Hour+2*time.Second {
			t.Errorf("%s after %s", j.State, j.Ended.Sub(j.Started))
		}
		if n := log.count("ticks"); n < 2 || n > 4 {
			t.Errorf("%d ticks", n)
		}
	})
}

func TestASilentNodeLosesItsJob(t *testing.T) {
	simulate(t, func(r *rig, _ *soloLog) {
		r.node("n1", 1)
		id := r.submit(func(s *cluster.JobSpec) { s.Requeue = true })
		time.Sleep(time.Second)
		if r.job(id).State != cluster.Configuring {
			t.Errorf("state %s", r.job(id).State)
		}
		time.Sleep(299 * time.Second)
		if j := r.job(id); j.State != cluster.Configuring {
			t.Errorf("state %s before the timeout", j.State)
		}
		r.node("n2", 1)
		time.Sleep(15 * time.Second)
		if j := r.job(id); j.State != cluster.Configuring || j.Attempt != 2 || j.Alloc.Nodes[0].Node != "n2" {
			t.Errorf("%s attempt %d on %v", j.State, j.Attempt, j.Alloc)
		}
	})
}

// sister answers from another controller's archive.
type sister struct {
	archive *archive.Archive
	lost    map[uint64]bool // records that it lacks
}

func (s sister) Finished(_ context.Context, _ string, from uint64, limit int) (data [][]byte, next uint64, err error) {
	records, err := s.archive.Between(from, limit)
	for _, r := range records {
		if r.Seq != from || s.lost[from] {
			break
		}
		data, from = append(data, r.Data), from+1
	}
	return data, from, err
}

func (s sister) Rows(_ context.Context, _ string, j uint32, from uint64, limit int) (data [][]byte, err error) {
	rows, err := s.archive.Rows(archive.Journal(j), from, limit)
	for _, r := range rows {
		if r.Seq != from || s.lost[from] {
			break
		}
		data, from = append(data, r.Data), from+1
	}
	return data, err
}

func (s sister) Blobs(_ context.Context, _ string, digests []cluster.Digest) ([][]byte, error) {
	var list [][]byte
	for _, d := range digests {
		content, _, err := s.archive.Blob(d)
		if err != nil {
			return nil, err
		}
		list = append(list, content)
	}
	return list, nil
}

// TestAnArchiveIsCompletedByAPeer gives a new controller a snapshot, as raft does after a long
// absence, and lets it request the missing data.
func TestAnArchiveIsCompletedByAPeer(t *testing.T) {
	r := newRig(t, t.TempDir(), true)
	epoch := r.node("n1", 8)
	script := []byte("#!/bin/sh\nexit 0\n")
	for range 8 {
		spec := cluster.JobSpec{Name: "j", Owner: ada.Identity, WorkDir: "/", TimeLimit: time.Hour, Script: sha256.Sum256(script),
			Request: cluster.Request{Nodes: 1, GPUsPerNode: 1}}
		r.do(&command.SubmitJobs{Actor: ada, Jobs: []command.Submission{{Spec: spec}}, Blobs: [][]byte{script}})
	}
	r.until("all run", func() bool { return r.replica.View().Counts().ByState[cluster.Configuring] == 8 })
	r.finish("n1", epoch)
	r.until("all have ended", func() bool { return r.replica.View().FinishedSeq() == 8 })
	var image bytes.Buffer
	must(t, r.replica.View().Encode(&image))

	empty, err := archive.Open(t.TempDir(), archive.Options{Pause: time.Millisecond})
	must(t, err)
	defer empty.Close()
	replica := NewReplica(empty, slog.New(slog.DiscardHandler))
	must(t, replica.Restore(&image))
	must(t, empty.Expect(8))
	// The newest finished jobs came with the snapshot; older ones are a gap.
	filler := &Filler{Replica: replica, Archive: empty, Others: func() []string { return []string{"a"} },
		Peers: sister{r.archive, nil}, Logger: slog.New(slog.DiscardHandler)}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); filler.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	r.until("the archive is complete", func() bool {
		content, ok, err := empty.Blob(sha256.Sum256(script))
		return err == nil && ok && bytes.Equal(content, script) && filler.Complete()
	})
	records, err := empty.Between(1, 100)
	if err != nil || len(records) != 8 {
		t.Fatal(len(records), err)
	}
}

func TestGapsAreFilledFromAPeer(t *testing.T) {
	full, err := archive.Open(t.TempDir(), archive.Options{Pause: time.Millisecond})
	must(t, err)
	defer full.Close()
	script := []byte("#!/bin/sh\n")
	for seq := uint64(1); seq <= 2500; seq++ {
		job := &cluster.Job{ID: cluster.JobID(seq), Index: cluster.NoIndex, State: cluster.Completed,
			Spec: &cluster.JobSpec{Name: "j", Owner: ada.Identity, Script: sha256.Sum256(script)}}
		must(t, full.Append(seq, []archive.Record{recordOf(seq, job, command.EncodeJob(job))}, []archive.Blob{{Digest: sha256.Sum256(script), Content: script}}))
	}
	empty, err := archive.Open(t.TempDir(), archive.Options{Pause: time.Millisecond})
	must(t, err)
	defer empty.Close()
	must(t, empty.Expect(2500))
	peers := sister{full, map[uint64]bool{2000: true}}
	filler := &Filler{Replica: NewReplica(empty, slog.Default()), Archive: empty, Peers: &peers, Others: func() []string { return []string{"a"} }}
	if err := filler.fill(context.Background()); err == nil {
		t.Fatal("filled what the peer has not")
	}
	gaps, err := empty.Gaps()
	if err != nil || len(gaps) != 1 || gaps[0] != (archive.Gap{First: 2000, Last: 2500}) {
		t.Fatal(gaps, err)
	}
	peers.lost = nil
	must(t, filler.fill(context.Background()))
	if gaps, err = empty.Gaps(); err != nil || len(gaps) != 0 {
		t.Fatal(gaps, err)
	}
	if content, ok, err := empty.Blob(sha256.Sum256(script)); err != nil || !ok || !bytes.Equal(content, script) {
		t.Fatal(ok, err)
	}
}

// BenchmarkShortJobs submits one-GPU jobs that end immediately, on 4 nodes of 8 GPUs over a real
// log, and reports jobs per second.
func BenchmarkShortJobs(b *testing.B) {
	r := newRig(b, b.TempDir(), true)
	epochs := map[string]uint64{}
	for _, name := range []string{"n1", "n2", "n3", "n4"} {
		epochs[name] = r.node(name, 8)
	}
	stop := make(chan struct{})
	var nodes sync.WaitGroup
	for name, epoch := range epochs {
		nodes.Go(func() {
			changed := r.replica.SubscribeNode(name)
			defer changed.Close()
			for {
				select {
				case <-changed.C():
					changed.Take()
					r.finish(name, epoch)
				case <-stop:
					return
				}
			}
		})
	}
	b.ResetTimer()
	spec := cluster.JobSpec{Name: "j", Owner: ada.Identity, WorkDir: "/", TimeLimit: time.Hour, Request: cluster.Request{Nodes: 1, GPUsPerNode: 1}}
	for sent := 0; sent < b.N; sent += 100 {
		r.do(&command.SubmitJobs{Actor: ada, Jobs: []command.Submission{{Spec: spec, Array: []command.IndexRange{{First: 0, Last: 99, Step: 1}}}}})
	}
	for r.replica.View().FinishedSeq() < uint64(b.N) {
		time.Sleep(time.Millisecond)
	}
	b.ReportMetric(float64(r.replica.View().FinishedSeq())/b.Elapsed().Seconds(), "jobs/s")
	b.StopTimer()
	close(stop)
	nodes.Wait()
}
