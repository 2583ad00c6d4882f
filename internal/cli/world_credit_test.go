package cli_test

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/greylag/greylag/internal/archive"
	"github.com/greylag/greylag/internal/auth"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/controller"
	"github.com/greylag/greylag/internal/jobmail"
	"github.com/greylag/greylag/internal/pki"
	"github.com/greylag/greylag/internal/raftlog"
	"github.com/greylag/greylag/internal/schedule"
	"github.com/greylag/greylag/internal/server"
	"github.com/greylag/greylag/internal/server/views"
	"github.com/greylag/greylag/pkg/cluster"
)

// bank is a real controller for the pages about credits: server, state, archive and planner. Its
// log is this process alone; the page sets its clock and its users.
type bank struct {
	*controller.Replica
	server *server.Server
	signer *auth.Signer
	mu     sync.Mutex
	index  uint64
	now    time.Time
	user   string
}

func newBank(t testing.TB, dir string, now time.Time) (*bank, error) {
	ca, err := pki.NewCA("page-1", now.Add(-time.Hour))
	if err != nil {
		return nil, err
	}
	ids := map[pki.Role]*pki.Identity{}
	for role, name := range map[pki.Role]string{pki.RoleController: "ctl1", pki.RoleAuth: "login1"} {
		at := filepath.Join(dir, "bank", string(role))
		if err := ca.Issue(at, pki.Grant{Peer: pki.Peer{ClusterID: "page-1", Role: role, Name: name}}, now.Add(-time.Hour)); err != nil {
			return nil, err
		}
		if ids[role], _, err = pki.OpenIdentity(at); err != nil {
			return nil, err
		}
	}
	store, err := archive.Open(filepath.Join(dir, "bank", "archive"), archive.Options{})
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = store.Close() }) // never read again
	log := slog.New(slog.DiscardHandler)
	b := &bank{Replica: controller.NewReplica(store, log), now: now, user: "root"}
	if b.signer, err = auth.NewSigner(ids[pki.RoleAuth]); err != nil {
		return nil, err
	}
	b.server = server.New(server.Config{
		ID: "ctl-1", State: b, Leader: b, Log: b, Members: b, Archive: store, Trust: ca.Trust(), Identity: ids[pki.RoleController], CA: ca,
		Subscribe: func(string) views.Subscription { return b.Subscribe() }, Clock: b.clock, Logger: log,
	})
	policy := cluster.DefaultPolicy()
	policy.Cluster = "page"
	return b, b.do(&command.Init{ClusterID: "page-1", Policy: policy})
}

func (b *bank) clock() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now
}

// ServeHTTP identifies every caller as the user of the page.
func (b *bank) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	who, now := cluster.Identity{User: b.user}, b.now
	b.mu.Unlock()
	if who.User != "root" {
		who.UID, who.GID = 1000+uint32(who.User[0]), 100
	}
	token, err := b.signer.Token(who, now)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	r.Header.Set("Authorization", "Bearer "+token)
	b.server.ServeHTTP(w, r)
}

// Propose applies a command at the page's time, which then advances by a microsecond.
func (b *bank) Propose(_ context.Context, c command.Command) (command.Result, uint64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.index++
	b.now = b.now.Add(time.Microsecond)
	result := b.Apply(b.index, b.now.UnixNano(), [][]byte{command.Encode(c)})[0]
	return result.(command.Result), b.index, nil
}

// do applies a command that must not be refused.
func (b *bank) do(c command.Command) error {
	result, _, _ := b.Propose(context.Background(), c)
	if r, refused := result.(*command.Refusal); refused {
		return errors.New(r.Message)
	}
	return nil
}

func (b *bank) Leading() (context.Context, bool)                                        { return context.Background(), true }
func (b *bank) RecordHeartbeat(string, uint64)                                          {}
func (b *bank) Ran(string, uint64, cluster.JobID, cluster.Attempt, time.Duration, bool) {}
func (b *bank) ReadIndex(context.Context) (uint64, error)                               { return 0, nil }
func (b *bank) WaitApplied(context.Context, uint64) error                               { return nil }
func (b *bank) Leader() (id, addr string)                                               { return "ctl-1", "" }
func (b *bank) Status() raftlog.Status                                                  { return raftlog.Status{ID: "ctl-1"} }
func (b *bank) DiskLow() bool                                                           { return false }
func (b *bank) NoVoterHasSpace() bool                                                   { return false }
func (b *bank) AddMember(context.Context, string, string) error                         { return raftlog.ErrNoMember }
func (b *bank) IsMember() bool                                                          { return true }
func (b *bank) Identify(string) (string, *x509.Certificate, error) {
	return "", nil, raftlog.ErrNoMember
}
func (b *bank) RemoveMember(context.Context, string) error { return raftlog.ErrNoMember }
func (b *bank) Transfer(context.Context, string) error     { return raftlog.ErrNoMember }
func (b *bank) Backup(context.Context, io.Writer, raftlog.Contents) (raftlog.BackupInfo, error) {
	return raftlog.BackupInfo{}, raftlog.ErrClosed
}

// banking is the pages' command "bank": begin; "bank as USER"; "bank at TIME"; "bank before TIME",
// without a tick; "bank node NAME TYPE GPUS"; "bank pass", a scheduling pass; "bank run JOB" and "bank end JOB", on
// all its nodes; "bank notices JOB FILE", of its user.
func banking(ts *testscript.TestScript, _ bool, args []string) {
	w := ts.Value("cluster").(*world)
	if len(args) == 0 {
		at, err := time.Parse(time.RFC3339, ts.Getenv("PAGE_NOW"))
		ts.Check(err)
		b, err := newBank(w.t, ts.Getenv("WORK"), at)
		ts.Check(err)
		w.bank.Store(b)
		return
	}
	b := w.bank.Load()
	switch args[0] {
	case "as":
		b.mu.Lock()
		b.user = args[1]
		b.mu.Unlock()
	case "at", "before":
		at, err := time.Parse(time.RFC3339, args[1])
		ts.Check(err)
		ts.Setenv("PAGE_NOW", args[1])
		b.mu.Lock()
		b.now = at
		b.mu.Unlock()
		if args[0] == "at" {
			ts.Check(b.do(&command.Tick{}))
		}
	case "node":
		ts.Check(b.do(&command.RegisterNode{Node: nodeOf(ts, args[1:])}))
	case "pass":
		snap := b.View().Snapshot()
		snap.Now = cluster.InstantOf(b.clock())
		d := schedule.Decide(snap)
		ts.Check(b.do(&command.CommitPlan{Plan: d.Plan}))
	case "run", "end", "notices":
		id, err := strconv.ParseUint(args[1], 10, 64)
		ts.Check(err)
		switch job := cluster.JobID(id); args[0] {
		case "run":
			ts.Check(b.report(job, cluster.TaskStarted, cluster.TaskStarted))
		case "end":
			ts.Check(b.report(job, cluster.TaskStarted, cluster.TaskClean))
		case "notices":
			j, _ := b.View().Job(job)
			text := ""
			for _, e := range jobmail.Of(j, 0, cluster.InstantOf(b.clock())) {
				text += e.Text("job "+j.Ref().String()) + "\n"
			}
			ts.Check(os.WriteFile(ts.MkAbs(args[2]), []byte(text), 0o600))
		}
	default:
		ts.Fatalf("bank %s?", args[0])
	}
}

func nodeOf(ts *testscript.TestScript, words []string) cluster.Node {
	n := cluster.Node{Name: words[0], BootID: "b", CPUs: 64, Memory: 512 * cluster.GiB}
	gpus, err := strconv.Atoi(words[2])
	ts.Check(err)
	for i := range gpus {
		n.GPUs = append(n.GPUs, cluster.GPU{Index: int32(i), Type: words[1]})
	}
	return n
}

// report reports that the tasks of a job went through phases, and succeeded.
func (b *bank) report(id cluster.JobID, first, last cluster.TaskPhase) error {
	for phase := first; phase <= last; phase++ {
		v := b.View()
		j, active := v.Job(id)
		if !active || j.Alloc == nil {
			return errors.New("the job does not run")
		}
		for _, a := range j.Alloc.Nodes {
			n, _ := v.Node(a.Node)
			if err := b.do(&command.ReportTasks{Node: a.Node, Epoch: n.Epoch, Seen: v.Index(), Tasks: []command.TaskReport{
				{Job: id, Attempt: j.Attempt, Task: cluster.Task{Phase: phase, Cause: cluster.Exited}},
			}}); err != nil {
				return err
			}
		}
	}
	return nil
}
