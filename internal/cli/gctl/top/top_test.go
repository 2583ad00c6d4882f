package top

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/timestamppb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/api/gen/greylag/v1/greylagv1connect"
	"github.com/greylag/greylag/internal/cli/gctl/tool"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/cli/ui/terminaltest"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// large returns a state with n partitions and n jobs.
func large(n int) state {
	s := state{info: &greylagv1.GetInfoResponse{RunningJobs: int64(n), PendingJobs: 7}}
	for i := range n {
		s.info.Partitions = append(s.info.Partitions, &greylagv1.PartitionInfo{
			Name:   fmt.Sprintf("a-partition-with-a-long-name-%d", i),
			Groups: []*greylagv1.NodeGroup{{State: greylagv1.NodeState_NODE_STATE_IDLE, Nodes: 1000, GpusTotal: 8000, CpusTotal: 128000}},
		})
		s.jobs = append(s.jobs, &greylagv1.Job{
			Ref: fmt.Sprint(i), Name: strings.Repeat("name\x1b", 30), Partition: "gpu", State: greylagv1.JobState_JOB_STATE_PENDING, Reason: greylagv1.Reason_REASON_PRIORITY,
			Planned: timestamppb.New(noon), Promised: true,
		})
	}
	return s
}

func TestScreenFitsTheTerminal(t *testing.T) {
	p := &command{Tool: &tool.Tool{Process: &ui.Process{Now: func() time.Time { return noon }}}}
	for _, n := range []int{0, 1, 2, 5, 9, 10, 11, 30, 500} {
		for _, height := range []int{1, 2, 5, 8, 24, 60} {
			lines := p.screen(large(n), 80, height)
			if len(lines) > height {
				t.Errorf("%d jobs: %d lines of %d", n, len(lines), height)
			}
			for _, line := range lines {
				if len(line) > 80 || strings.Contains(line, "\x1b") {
					t.Errorf("%d jobs: a line of %d columns: %q", n, len(line), line)
				}
			}
			if text := strings.Join(lines, "\n"); n > 20 && height == 24 && (strings.Count(text, "partition-") < 2 || !strings.Contains(text, "more jobs")) {
				t.Errorf("%d jobs:\n%s", n, text)
			}
		}
	}
}

// noCluster gives fake the calls that it does not have.
type noCluster interface{ ui.Cluster }

// fake is a cluster without controllers.
type fake struct {
	noCluster
	changed chan struct{} // a change of the user's jobs
}

type fakeCluster struct {
	greylagv1connect.ClusterServiceClient
}

type fakeJobs struct {
	greylagv1connect.JobServiceClient
}

func (*fake) Cluster() greylagv1connect.ClusterServiceClient { return fakeCluster{} }
func (*fake) Jobs() greylagv1connect.JobServiceClient        { return fakeJobs{} }

func (fakeCluster) GetInfo(context.Context, *greylagv1.GetInfoRequest) (*greylagv1.GetInfoResponse, error) {
	return large(2).info, nil
}

func (fakeJobs) ListJobs(context.Context, *greylagv1.ListJobsRequest) (*greylagv1.ListJobsResponse, error) {
	return &greylagv1.ListJobsResponse{Jobs: large(2).jobs}, nil
}

func (f *fake) Watch(ctx context.Context, _ *greylagv1.WatchJobsRequest, receive func(*greylagv1.WatchJobsResponse) error) error {
	_ = receive(&greylagv1.WatchJobsResponse{CaughtUp: true})
	for {
		select {
		case <-f.changed:
			_ = receive(&greylagv1.WatchJobsResponse{})
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// readUntil reads until the text has come n times.
func readUntil(t *testing.T, from *os.File, text string, n int) string {
	t.Helper()
	var all []byte
	for buf := make([]byte, 4096); strings.Count(string(all), text) < n; {
		k, err := from.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, buf[:k]...)
	}
	return string(all)
}

// TestTopQuitsAndRestoresTheTerminal watches until q is pressed, or until Ctrl-C cancels.
func TestTopQuitsAndRestoresTheTerminal(t *testing.T) {
	for _, quit := range []string{"q", "Ctrl-C"} {
		keys, terminal := terminaltest.Open(t, 24, 80)
		mode := func() unix.Termios {
			m, err := unix.IoctlGetTermios(int(terminal.Fd()), unix.TCGETS)
			if err != nil {
				t.Fatal(err)
			}
			return *m
		}
		before := mode()
		f := &fake{changed: make(chan struct{})}
		p := &command{Tool: &tool.Tool{Process: &ui.Process{Now: func() time.Time { return noon }, Stdin: terminal, Stdout: terminal}}, every: time.Hour}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- p.run(ctx, f) }()
		shown := readUntil(t, keys, clearBelow, 1)
		if !strings.HasPrefix(shown, enterScreen+homeCursor+"2 jobs running, 7 pending") || !strings.Contains(shown, "promised 2026-11-21T12:00:00") {
			t.Errorf("shows %q", shown)
		}
		if during := mode(); during.Lflag&(unix.ECHO|unix.ICANON) != 0 || during.Lflag&unix.ISIG == 0 {
			t.Errorf("the terminal's mode is %x", during.Lflag)
		}
		f.changed <- struct{}{}
		readUntil(t, keys, clearBelow, 1) // a second screen, an hour before the interval is over
		if quit == "q" {
			if _, err := keys.WriteString("xq"); err != nil {
				t.Fatal(err)
			}
		} else {
			cancel()
		}
		readUntil(t, keys, leaveScreen, 1)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if after := mode(); after != before {
			t.Errorf("%s: the terminal is not restored: %+v, was %+v", quit, after, before)
		}
	}
}
