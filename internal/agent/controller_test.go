package agent

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/reconcile"
	"github.com/greylag/greylag/internal/wire"
)

// patient is how long tests wait for a condition.
const patient = 2 * time.Minute

var errDown = errors.New("controller is down")

// controller is the test's end of a session. The test sets the desired tasks; the controller stores
// the reports.
type controller struct {
	t    testing.TB
	name string // of the cluster
	uid  uint32 // owner of the tasks
	gid  uint32

	mu        sync.Mutex
	changed   chan struct{} // closed and replaced at every change
	version   uint64
	wanted    map[reconcile.ID]*greylagv1.WantedTask
	logs      []*greylagv1.LogRequest
	blobs     map[[sha256.Size]byte][]byte
	down      bool
	refused   error                    // answer to registrations
	reboot    string                   // boot ID that is to end
	requested int64                    // when, in seconds
	lost      string                   // its answer about contents that it does not have
	secrets   []*greylagv1.SecretValue // of any task, besides its token
	lives     int                      // a change ends all streams
	boots     []string
	registry  []*greylagv1.RegisterNodeRequest
	reports   []*greylagv1.ReportTasksRequest
	pushed    map[string][]*greylagv1.PushLogRequest
	injected  []*greylagv1.WatchTasksResponse // sent unchanged
}

func newController(t testing.TB) *controller {
	return &controller{
		t: t, name: "c1", uid: uint32(os.Getuid()), gid: uint32(os.Getgid()), changed: make(chan struct{}), version: 100,
		wanted: map[reconcile.ID]*greylagv1.WantedTask{}, blobs: map[[sha256.Size]byte][]byte{},
		pushed: map[string][]*greylagv1.PushLogRequest{},
	}
}

// change changes the desired state, as one commit.
func (c *controller) change(fn func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.version++
	fn()
	c.signalChange()
}

func (c *controller) signalChange() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// until waits for a condition, which it checks with the lock held.
func (c *controller) until(what string, condition func() bool) {
	c.t.Helper()
	deadline := time.After(patient)
	for {
		c.mu.Lock()
		ok, changed := condition(), c.changed
		c.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			c.mu.Lock()
			defer c.mu.Unlock()
			var last *greylagv1.ReportTasksRequest
			if len(c.reports) > 0 {
				last = c.reports[len(c.reports)-1]
			}
			c.t.Fatalf("never: %s; last report: %v", what, last)
		}
	}
}

// last returns the newest report of a task; nil if none exists.
func (c *controller) last(id reconcile.ID) *greylagv1.ReportedTask {
	if len(c.reports) == 0 {
		return nil
	}
	for _, task := range c.reports[len(c.reports)-1].GetTasks() {
		if idOf(task) == id {
			return task
		}
	}
	return nil
}

// reach waits until a task is reported in the phase or a later one, and returns the report.
func (c *controller) reach(id reconcile.ID, phase string) (task *greylagv1.ReportedTask) {
	c.t.Helper()
	c.until(phase, func() bool {
		task = c.last(id)
		return task != nil && slices.Index(phaseWords[:], wire.Word(task.GetPhase())) >= slices.Index(phaseWords[:], phase)
	})
	return task
}

// settled waits until a task is reported clean, and removes it from the desired set.
func (c *controller) settled(id reconcile.ID) *greylagv1.ReportedTask {
	c.t.Helper()
	task := c.reach(id, "clean")
	c.change(func() { delete(c.wanted, id) })
	return task
}

func (c *controller) set() *greylagv1.WatchTasksResponse {
	message := &greylagv1.WatchTasksResponse{Version: c.version, Reboot: c.reboot, RebootRequested: timestamppb.New(time.Unix(c.requested, 0))}
	for _, id := range slices.SortedFunc(maps.Keys(c.wanted), reconcile.ID.Compare) {
		message.Tasks = append(message.Tasks, proto.Clone(c.wanted[id]).(*greylagv1.WantedTask))
	}
	for _, request := range c.logs {
		message.Logs = append(message.Logs, proto.Clone(request).(*greylagv1.LogRequest))
	}
	return message
}

func (c *controller) put(content []byte) []byte {
	digest := sha256.Sum256(content)
	c.blobs[digest] = content
	return digest[:]
}

// want adds a task that runs a script.
func (c *controller) want(id reconcile.ID, script string, edit func(*greylagv1.WantedTask)) {
	c.change(func() {
		task := &greylagv1.WantedTask{
			Job: uint64(id.Job), Attempt: uint32(id.Attempt), Ref: id.Job.String(), User: "tester", Uid: c.uid, Gid: c.gid,
			Name: "test", Partition: "main", Script: c.put([]byte(script)), Environment: c.put([]byte("MINE=1\x00PATH=/usr/bin:/bin")),
			WorkDir: "/", Output: "/dev/null", KillWait: durationpb.New(time.Minute), Started: timestamppb.Now(),
			Nodes: []*greylagv1.NodeAllocation{{Node: "n1", Cpus: 1}}, TasksPerNode: 1, CpusPerTask: 1,
		}
		if edit != nil {
			edit(task)
		}
		c.wanted[id] = task
	})
}

func (c *controller) Register(_ context.Context, r *greylagv1.RegisterNodeRequest) (*greylagv1.RegisterNodeResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down {
		return nil, errDown
	}
	if c.refused != nil {
		c.signalChange()
		return nil, c.refused
	}
	epoch := slices.Index(c.boots, r.GetBootId()) + 1
	if epoch == 0 {
		c.boots = append(c.boots, r.GetBootId())
		epoch = len(c.boots)
	}
	c.registry = append(c.registry, r)
	c.signalChange()
	return &greylagv1.RegisterNodeResponse{Epoch: uint64(epoch), Cluster: c.name}, nil
}

func (c *controller) Wanted(ctx context.Context, _ *greylagv1.WatchTasksRequest, receive func(*greylagv1.WatchTasksResponse) error) error {
	c.mu.Lock()
	life := c.lives
	c.mu.Unlock()
	for {
		c.mu.Lock()
		if c.down || c.lives != life {
			c.mu.Unlock()
			return errDown
		}
		messages, changed := append(c.injected, c.set()), c.changed
		c.injected = nil
		c.mu.Unlock()
		for _, message := range messages {
			if err := receive(message); err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (c *controller) Report(_ context.Context, r *greylagv1.ReportTasksRequest) (*greylagv1.ReportTasksResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down {
		return nil, errDown
	}
	c.reports = append(c.reports, r)
	c.signalChange()
	return &greylagv1.ReportTasksResponse{Index: c.version}, nil
}

func (c *controller) Fetch(_ context.Context, r *greylagv1.GetContentRequest) (*greylagv1.GetContentResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	content, ok := c.blobs[[sha256.Size]byte(r.GetDigest())]
	if !ok && c.lost != "" {
		return nil, connect.NewError(connect.CodeDataLoss, errors.New(c.lost))
	}
	if c.down || !ok {
		return nil, errDown
	}
	return &greylagv1.GetContentResponse{Content: content}, nil
}

// Secrets returns a secret that names the attempt, and the others, for any task.
func (c *controller) Secrets(_ context.Context, r *greylagv1.GetSecretsRequest) (*greylagv1.GetSecretsResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.down:
		return nil, errDown
	case c.lost != "":
		return nil, connect.NewError(connect.CodeDataLoss, errors.New(c.lost))
	}
	token := &greylagv1.SecretValue{Name: "token", Value: fmt.Appendf(nil, "value of %d.%d", r.GetJob(), r.GetAttempt())}
	return &greylagv1.GetSecretsResponse{Secrets: append([]*greylagv1.SecretValue{token}, c.secrets...)}, nil
}

func (c *controller) PushLog(_ context.Context, r *greylagv1.PushLogRequest) (*greylagv1.PushLogResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pushed[r.GetId()] = append(c.pushed[r.GetId()], proto.Clone(r).(*greylagv1.PushLogRequest))
	c.signalChange()
	return &greylagv1.PushLogResponse{}, nil
}
