//go:build linux

package local

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/burst"
	"github.com/greylag/greylag/internal/burst/check"
	"github.com/greylag/greylag/pkg/cluster"
)

// TestMain is the provider program in the processes that tests start.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "--dir" {
		os.Exit(Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// cloud is a state directory with programs that stand in for gctl and gnoded.
type cloud struct {
	*burst.Program
	*store
	t   *testing.T
	log *bytes.Buffer
}

// newCloud returns an empty one. The stand-in of gnoded runs until it is killed, with a child.
func newCloud(t *testing.T, change func(*Settings)) *cloud {
	t.Helper()
	dir, programs := t.TempDir(), t.TempDir()
	for name, body := range map[string]string{
		"gctl":   `echo "$@"; [ "$1 $2" = "join --lease" ] && grep -q '"token":"join-token"' "$3"`,
		"gnoded": `echo "gnoded $@"; setsid sleep 1000 & exec sleep 1001`,
	} {
		if err := os.WriteFile(filepath.Join(programs, name), []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c := &cloud{store: &store{dir: dir}, t: t, log: &bytes.Buffer{}}
	set := defaultSettings()
	set.Programs, set.Runtime = programs, "process"
	if change != nil {
		change(&set)
	}
	if err := c.save(&set); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c.Program = burst.New(burst.Config{
		Program: self, Args: []string{"--dir", dir}, Timeout: 30 * time.Second, ClusterID: "c1", Log: slog.New(slog.NewTextHandler(c.log, nil)),
	})
	t.Cleanup(func() {
		ctx := context.Background()
		list, err := c.List(ctx)
		var ids []string
		for _, x := range list {
			ids = append(ids, x.ID)
		}
		if _, bad := c.Terminate(ctx, ids); err != nil || bad != nil {
			t.Error(err, bad)
		}
	})
	return c
}

func launchOf(launch cluster.LeaseID, nodes int) *burst.LaunchRequest {
	o := defaultSettings().Offers[0]
	lease := cluster.Lease{Launch: launch, Try: 1}
	return &burst.LaunchRequest{
		Launch: launch, Try: 1, ClientToken: lease.ClientToken("c1"), Nodes: nodes, MaxPrice: 25_000_000, Lifetime: time.Hour,
		Offer:       cluster.Offer{Name: o.Name, Market: cluster.Spot, Type: o.Type, Region: o.Region},
		Controllers: []string{"127.0.0.1:7117"}, JoinToken: "join-token",
	}
}

// await lists until an instance is as it should be.
func (c *cloud) await(id string, right func(*cluster.Instance) bool) {
	c.t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		list, err := c.List(c.t.Context())
		if err != nil {
			c.t.Fatal(err)
		}
		for i := range list {
			if list[i].ID == id && right(&list[i]) {
				return
			}
		}
		if time.Now().After(end) {
			text, _ := os.ReadFile(c.path(id, consoleFile))
			c.t.Fatalf("%s: %+v\n%s", id, list, text)
		}
	}
}

func (c *cloud) awaitBooted(id string) {
	c.t.Helper()
	c.await(id, func(*cluster.Instance) bool { return c.exists(id, bootedFile) })
}

// processes returns the processes whose command line has a text.
func processes(text string) (found []string) {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range lines {
		if line, err := os.ReadFile(path); err == nil && strings.Contains(string(line), text) && path != "/proc/self/cmdline" {
			found = append(found, path)
		}
	}
	return found
}

func TestConformance(t *testing.T) {
	for _, kind := range []string{"process", "namespaces"} {
		c := newCloud(t, func(s *Settings) {
			if kind == "namespaces" {
				s.Runtime = "containerd"
				s.NeverJoin = true
			}
		})
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		rules := 0
		failed, err := check.Run(t.Context(), check.Config{
			Provider: burst.Config{Program: self, Args: []string{"--dir", c.dir}, Timeout: 30 * time.Second, Log: slog.New(slog.DiscardHandler)},
			Confirm:  func(o cluster.Offer, currency string) bool { return o.Market == cluster.Spot && currency == "USD" },
			Wait:     20 * time.Second, Poll: 20 * time.Millisecond,
			Report: func(r check.Result) {
				rules++
				if r.Problem != "" {
					t.Errorf("%s: %s", r.Rule, r.Problem)
				}
			},
		})
		if failed > 0 || err != nil || rules != 20 {
			t.Errorf("%d rules, %d failed, %v", rules, failed, err)
		}
		for end := time.Now().Add(time.Minute); len(processes(c.dir)) > 0; time.Sleep(20 * time.Millisecond) { // killed ones may still end
			if time.Now().After(end) {
				t.Fatalf("left running: %v", processes(c.dir))
			}
		}
	}
}

func TestInstanceJoinsAndEnds(t *testing.T) {
	c := newCloud(t, nil)
	list, err := c.Launch(t.Context(), launchOf(1, 2))
	if err != nil || len(list) != 2 || list[0].Price != 20_000_000 {
		t.Fatal(list, err)
	}
	for _, x := range list {
		c.awaitBooted(x.ID)
	}
	toml, err := os.ReadFile(c.path(list[1].ID, machineDir, "gnoded.toml"))
	for _, want := range []string{"reclaim_source = \"file:" + c.path(list[1].ID, noticeFile), "simulated_gpu_offset = 8", "runtime = \"process\"", "[[simulated_gpus]]\ncount = 8", "controllers = [\"127.0.0.1:7117\"]"} {
		if err != nil || !strings.Contains(string(toml), want) {
			t.Errorf("gnoded.toml lacks %s: %v\n%s", want, err, toml)
		}
	}
	text, err := c.Console(t.Context(), list[0].ID)
	if err != nil || !strings.Contains(text, "join --lease "+c.path(list[0].ID, userDataFile)+" --instance "+list[0].ID) {
		t.Errorf("console %v\n%s", err, text)
	}
	if _, err := c.Terminate(t.Context(), []string{list[0].ID, "i-unknown", "../x", list[0].ID}); err != nil {
		t.Fatal(err)
	}
	c.await(list[0].ID, func(x *cluster.Instance) bool { return x.Terminated && !x.Interrupted })
	c.await(list[1].ID, func(x *cluster.Instance) bool { return !x.Terminated })
	if c.exists(list[0].ID, machineDir) || c.exists(list[0].ID, userDataFile) || len(processes(list[0].ID)) > 0 {
		t.Error("the ended instance left data or processes:", processes(list[0].ID))
	}
	// Another cluster sees and ends nothing.
	other := burst.New(burst.Config{Program: os.Args[0], Args: []string{"--dir", c.dir}, Timeout: 10 * time.Second, ClusterID: "c2", Log: slog.New(slog.DiscardHandler)})
	if list, err := other.List(t.Context()); err != nil || len(list) > 0 {
		t.Error(list, err)
	}
	if _, err := other.Terminate(t.Context(), []string{list[1].ID}); err != nil || !c.running(list[1].ID) {
		t.Error("another cluster ended an instance", err)
	}
}

func TestReclaim(t *testing.T) {
	c := newCloud(t, nil)
	list, err := c.Launch(t.Context(), launchOf(1, 1))
	if err != nil {
		t.Fatal(err)
	}
	id := list[0].ID
	c.awaitBooted(id)
	if status := Main([]string{"--dir", c.dir, "reclaim", "--in", "2s", id}, nil, os.Stdout, os.Stderr); status != 0 {
		t.Fatal("exit status", status)
	}
	notice, err := os.ReadFile(c.path(id, noticeFile))
	at, bad := time.Parse(time.RFC3339, strings.TrimSpace(string(notice)))
	if err != nil || bad != nil || time.Until(at) > 3*time.Second {
		t.Errorf("notice %q, %v, %v", notice, err, bad)
	}
	c.await(id, func(x *cluster.Instance) bool { return x.Reclaim == cluster.InstantOf(at) || x.Terminated })
	c.await(id, func(x *cluster.Instance) bool { return x.Terminated && x.Interrupted && x.Reclaim == 0 })
	if time.Now().Before(at) || len(processes(id)) > 0 {
		t.Error("ended before the deadline, or left processes", processes(id))
	}
	if status := Main([]string{"--dir", c.dir, "reclaim", id}, nil, os.Stdout, os.Stderr); status == 0 {
		t.Error("an ended instance was reclaimed")
	}
}

// TestFaults: each fault of the settings happens as often as set.
func TestFaults(t *testing.T) {
	c := newCloud(t, func(s *Settings) { s.CapacityFailures, s.LostResponses, s.ThrottledCalls, s.MaxInstances = 1, 1, 1, 2 })
	for _, want := range []error{burst.ErrThrottled, burst.ErrCapacity, burst.ErrTryLater} {
		if _, err := c.Launch(t.Context(), launchOf(1, 2)); !errors.Is(err, want) {
			t.Fatalf("%v, want %v", err, want)
		}
	}
	list, err := c.Launch(t.Context(), launchOf(1, 2))
	listed, bad := c.List(t.Context())
	if err != nil || bad != nil || len(list) != 2 || len(listed) != 2 {
		t.Error("after a lost response:", list, err, listed, bad)
	}
	if _, err := c.Launch(t.Context(), launchOf(2, 1)); !errors.Is(err, burst.ErrCapacity) {
		t.Error("more than max_instances:", err)
	}
	set, err := c.settings()
	if err != nil {
		t.Fatal(err)
	}
	set.Offers[0].Price = "26"
	if err := c.save(&set); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Launch(t.Context(), launchOf(3, 1)); !errors.Is(err, burst.ErrPrice) {
		t.Error("after a change of price:", err)
	}
	if prices, err := c.Offers(t.Context()); err != nil || prices.Offers[0].Price != 26_000_000 {
		t.Error(prices, err)
	}
}

// TestNeverJoins: the instance costs until it is ended, and its console says why.
func TestNeverJoins(t *testing.T) {
	c := newCloud(t, func(s *Settings) { s.NeverJoin = true })
	list, err := c.Launch(t.Context(), launchOf(1, 1))
	if err != nil {
		t.Fatal(err)
	}
	c.await(list[0].ID, func(*cluster.Instance) bool {
		text, err := c.Console(t.Context(), list[0].ID)
		return err == nil && strings.Contains(text, "never_join")
	})
}

// TestFailedJoin: the machine runs on, as it would at a cloud.
func TestFailedJoin(t *testing.T) {
	c := newCloud(t, nil)
	l := launchOf(1, 1)
	l.JoinToken = "expired"
	list, err := c.Launch(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	c.await(list[0].ID, func(x *cluster.Instance) bool {
		text, err := c.Console(t.Context(), x.ID)
		return err == nil && strings.Contains(text, "cannot join: gctl: exit status") && !x.Terminated
	})
}

// TestKilledLaunch: a launch that was killed before it had recorded or started all instances is completed.
func TestKilledLaunch(t *testing.T) {
	c := newCloud(t, nil)
	l := launchOf(1, 2)
	list, err := c.Launch(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range list {
		c.awaitBooted(x.ID)
	}
	if _, err := c.Terminate(t.Context(), []string{list[0].ID, list[1].ID}); err != nil {
		t.Fatal(err)
	}
	x, err := c.read(list[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	x.EndedAt = time.Time{}
	if err := errors.Join(c.write(x), os.Remove(c.path(x.ID, startedFile)), os.RemoveAll(c.path(list[1].ID)), os.MkdirAll(c.path(x.ID, machineDir), 0o755)); err != nil {
		t.Fatal(err)
	}
	again, err := c.Launch(t.Context(), l)
	if err != nil || len(again) != 2 || again[0].Terminated || c.exists(x.ID, recordFile) {
		t.Error("a launch that was killed while it recorded:", again, err)
	}
}

// TestInstanceEndsWithGnoded: the list says so.
func TestInstanceEndsWithGnoded(t *testing.T) {
	c := newCloud(t, nil)
	list, err := c.Launch(t.Context(), launchOf(1, 1))
	if err != nil {
		t.Fatal(err)
	}
	id := list[0].ID
	c.awaitBooted(id)
	off, err := os.ReadFile(c.path(id, machineDir, "power-off"))
	if err != nil || !bytes.HasPrefix(off, []byte("#!/bin/sh\nkill -TERM ")) {
		t.Fatalf("%s, %v", off, err)
	}
	x, err := c.read(id)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.signal(x, 15); err != nil {
		t.Fatal(err)
	}
	c.await(id, func(x *cluster.Instance) bool { return x.Terminated && !x.Interrupted })
	if found := processes(c.dir); len(found) > 0 {
		t.Error("left running:", found)
	}
}

func TestBadInput(t *testing.T) {
	dir := t.TempDir()
	question := `{"version": 1, "cluster": "c1", "deadline": "2026-01-01T00:00:00Z"}`
	for _, row := range []struct{ args, input, kind string }{
		{"launch", "", "invalid"}, {"launch", "garbage", "invalid"}, {"launch", question, "invalid"}, {"lunch", question, "invalid"}, {"list more", question, "invalid"},
		{"list", `{"version": 9, "cluster": "c1"}`, "invalid"}, {"console", question, "invalid"}, {"list", `{"version": 1}`, "invalid"},
	} {
		var out, log bytes.Buffer
		var a burst.Answer
		status := Main(append([]string{"--dir", dir}, strings.Fields(row.args)...), strings.NewReader(row.input), &out, &log)
		if err := json.Unmarshal(out.Bytes(), &a); err != nil || status != 1 || a.Error == nil || a.Error.Kind != row.kind {
			t.Errorf("%s with %s: status %d, %v: %s", row.args, row.input, status, err, &out)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, settingsFile), []byte(`{"offerz": []}`), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if Main([]string{"--dir", dir, "validate"}, strings.NewReader(question), &out, &out); !strings.Contains(out.String(), "offerz") {
		t.Error(out.String())
	}
}
