package doctor

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/config"
	"github.com/greylag/greylag/internal/pki"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// fault is one way to break a host, and the expected finding.
type fault struct {
	name  string
	harm  func(w *world)
	part  string
	check string
	level Level
	found string
}

func TestNothingIsWrong(t *testing.T) {
	w := newWorld(t)
	if err := os.Symlink("/dev/shm", w.path("state")); err != nil { // a tmpfs
		t.Fatal(err)
	}
	parts := map[string]int{}
	for _, f := range Examine(t.Context(), w.host) {
		parts[f.Part]++
		if f.Level == Warning && strings.Contains(f.Found, " left of ") {
			continue // the disk of the test, whose state is unknown
		}
		if f.Level != Good || f.Advice != "" || f.Found == "" {
			t.Errorf("%+v", f)
		}
	}
	for _, part := range []string{Commands, Login, Node, Controller} {
		if parts[part] < 3 {
			t.Errorf("%s: %d checks", part, parts[part])
		}
	}
}

// withGPU makes the driver of a host list a GPU with a property in JSON.
func withGPU(property string) func(*world) {
	return func(w *world) {
		w.nodeFile("runtime = \"process\"\n")
		w.write("gnvml", `#!/bin/sh
while read line; do id=${line#*\"id\":}; echo '{"id":'${id%%%%,*}',"host":{"driver":"570","devices":[{"index":0,"uuid":"GPU-a","name":"NVIDIA H100","memory":1,"minor":250,"bus":"0",`+property+`}]}}'; done
`)
	}
}

// TestEveryFault breaks a sound host in one way at a time.
func TestEveryFault(t *testing.T) {
	for _, f := range append(append(hostFaults(), keyFaults()...), clusterFaults()...) {
		t.Run(f.name, func(t *testing.T) {
			w := newWorld(t)
			f.harm(w)
			wants(t, f, Examine(t.Context(), w.host))
		})
	}
}

// TestTheClustersAdvice checks that a controller's hint takes precedence over the general one.
func TestTheClustersAdvice(t *testing.T) {
	w := newWorld(t)
	refusal := connect.NewError(connect.CodeUnauthenticated, errors.New("certificate was revoked"))
	refusal.Meta().Set(client.HintHeader, "make a token and join")
	w.refusal = refusal
	for _, f := range Examine(t.Context(), w.host) {
		if f.Part == Node && f.Check == "gnoded" && f.Level == Fault && f.Advice == "make a token and join" {
			return
		}
	}
	t.Error("no advice of the cluster")
}

func wants(t *testing.T, want fault, findings []Finding) {
	t.Helper()
	for _, f := range findings {
		if f.Part == want.part && f.Check == want.check && f.Level == want.level && strings.Contains(f.Found, want.found) {
			if f.Level != Good && f.Advice == "" {
				t.Errorf("nothing is advised: %+v", f)
			}
			return
		}
	}
	t.Errorf("no %s of %s about %s with %q among", want.level, want.part, want.check, want.found)
	for _, f := range findings {
		t.Errorf("  %+v", f)
	}
}

// hostFaults are those of files, sockets and programs.
func hostFaults() []fault {
	containerd := "[containerd]\nsocket = \"%[2]s/c.sock\"\n"
	return []fault{
		{"no client file", func(w *world) { os.Remove(w.path("client.toml")) }, Commands, "configuration", Fault, "client.toml"},
		{"two wrong keys", func(w *world) { w.write("gnoded.toml", "nmae = 1\ncpus = \"x\"\n") }, Node, "configuration", Fault, "gnoded.toml:2: cpus"},
		{"wrong login file", func(w *world) { w.write("gauthd.toml", "socket = 3\n") }, Login, "configuration", Fault, "gauthd.toml:1: socket"},
		{"wrong controller file", func(w *world) { w.write("gctld.toml", "listen = \"x\"\n") }, Controller, "configuration", Fault, "gctld.toml:1: listen"},
		{"gnoded is not installed", func(w *world) { os.Remove(w.path("bin/gnoded")) }, Node, "gnoded", Fault, "set up as a node, but gnoded is not installed"},
		{"gctld is not installed", func(w *world) { os.Remove(w.path("bin/gctld")) }, Controller, "gctld", Fault, "gctld is not installed"},
		{"gauthd is not installed", func(w *world) { os.Remove(w.path("bin/gauthd")) }, Login, "gauthd", Fault, "gauthd is not installed"},
		{"no gauthd", func(w *world) { w.stopAuth() }, Commands, "gauthd", Fault, "gauthd does not respond"},
		{"no gauthd here", func(w *world) { w.stopAuth() }, Login, "gauthd", Fault, "gauthd does not respond"},
		{"closed socket", func(w *world) { os.Chmod(w.path("auth.sock"), 0o600) }, Login, "gauthd", Fault, "mode 0600"},
		{"no containerd", func(w *world) { w.nodeFile(containerd) }, Node, "containerd", Fault, "c.sock: connect: no such file"},
		{"not containerd", func(w *world) { w.nodeFile("[containerd]\nsocket = \"%[2]s/auth.sock\"\n") }, Node, "containerd", Fault, "containerd"},
		{"no runc", func(w *world) { w.t.Setenv("PATH", w.path("bin")); w.nodeFile(containerd) }, Node, "oci_runtime", Fault, "is installed"},
		{"another runtime than the one in use", func(w *world) {
			w.write("runc", "#!/bin/sh\necho runc version 1.1.0\n")
			w.t.Setenv("PATH", w.dir+":"+w.path("bin")+":/bin:/usr/bin")
			w.node.Runtime = "containerd crun"
			w.nodeFile(containerd + "oci_runtime = \"runc\"\n")
		}, Node, "oci_runtime", Warning, "node n1 runs tasks with crun, but gnoded would now choose runc"},
		{"no shim", func(w *world) { w.t.Setenv("PATH", w.path("bin")); w.nodeFile(containerd + "shim = \"containerd\"\n") }, Node, "shim", Fault, "containerd-shim-runc-v2"},
		{"containerd's shim", func(w *world) {
			w.write("containerd-shim-runc-v2", "#!/bin/sh\n")
			w.t.Setenv("PATH", w.dir+":"+w.path("bin"))
			w.nodeFile(containerd + "shim = \"containerd\"\n")
		}, Node, "shim", Good, "containerd's own, "},
		{"no shim of ours", func(w *world) { w.nodeFile(containerd) }, Node, "shim", Fault, "gshim cannot be run: stat "},
		{"a shim without its daemon", func(w *world) { w.write("gshim", "#!/bin/sh\n"); w.nodeFile(containerd) }, Node, "shim", Fault, "gshimd cannot be run: stat "},
		{"our shim", func(w *world) {
			w.write("gshim", "#!/bin/sh\n")
			w.write("gshimd", "#!/bin/sh\n")
			w.nodeFile(containerd)
		}, Node, "shim", Good, "Greylag's, "},
		{"no prolog", func(w *world) { w.nodeFile("prolog = \"%[2]s/prolog\"\n") }, Node, "prolog", Fault, "no such file"},
		{"prolog that does not run", func(w *world) {
			w.nodeFile("prolog = \"%[2]s/prolog\"\n")
			w.write("prolog", "")
			os.Chmod(w.path("prolog"), 0o644)
		}, Node, "prolog", Fault, "permission denied"},
		{"no scratch directory", func(w *world) { w.nodeFile("scratch_dir = \"%[2]s/local\"\n") }, Node, "scratch_dir", Fault, "no such file"},
		{"an unsafe scratch directory", func(w *world) { w.scratch(0o777, "") }, Node, "scratch_dir", Fault, "run chmod 755 "},
		{"a small scratch directory", func(w *world) { w.scratch(0o755, "scratch_reserve = \"1000T\"\n") }, Node, "scratch_dir", Fault, "scratch_reserve leaves no space for jobs"},
		{"scratch space without limits", func(w *world) { w.scratch(0o755, "") }, Node, "scratch_dir", Warning, "does not enforce project quotas"},
		{"state on a disk", func(w *world) { w.write("state/x", "") }, Node, "state_dir", Warning, "is not on a tmpfs"},
		{"a file for a folder", func(w *world) { w.write("state", "") }, Node, "state_dir", Fault, "is not a directory"},
		{"no driver's helper", func(w *world) { w.nodeFile("runtime = \"process\"\n") }, Node, "gpus", Warning, "cannot list them"},
		{"a GPU that is bad", withGPU(`"bad":"ECC"`), Node, "gpus", Fault, "GPU 0 (GPU-a): ECC"},
		{"a GPU that needs a reset", withGPU(`"recovery":1`), Node, "gpus", Fault, "the driver asks for: reset"},
		{"a GPU with a pending remap", withGPU(`"pending":true`), Node, "gpus", Warning, "row remapping pending"},
		{"a slow GPU", withGPU(`"slow":"8 lanes"`), Node, "gpus", Warning, "GPU 0 (GPU-a): 8 lanes"},
		{"a GPU without its device", func(w *world) {
			w.nodeFile("runtime = \"process\"\n")
			w.write("gnvml", `#!/bin/sh
while read line; do id=${line#*\"id\":}; echo '{"id":'${id%%%%,*}',"host":{"driver":"570","devices":[{"index":0,"uuid":"GPU-a","name":"NVIDIA H100","memory":1,"minor":250,"bus":"0"}]}}'; done
`)
		}, Node, "gpus", Fault, "no device file: stat /dev/nvidia250"},
	}
}

// again issues another certificate.
func (w *world) again(folder string, role pki.Role, name string, at time.Time) {
	must(w.t, w.ca.Issue(w.path(folder), pki.Grant{Peer: pki.Peer{ClusterID: "lab-00000001", Role: role, Name: name}}, at))
}

func keyFaults() []fault {
	return []fault{
		{"not joined", func(w *world) { os.RemoveAll(w.path("node")) }, Node, "certificate", Fault, "no valid certificate"},
		{"a key for all to read", func(w *world) { os.Chmod(w.path("node/identity.pem"), 0o644) }, Node, "certificate", Fault, "can be read by others"},
		{"another's key", func(w *world) { w.again("node", pki.RoleAuth, "login", time.Now()) }, Node, "certificate", Fault, "it belongs to a auth"},
		{"ended", func(w *world) { w.again("auth", pki.RoleAuth, "login", time.Now().Add(-60*24*time.Hour)) }, Login, "certificate", Fault, "ended on"},
		{"not renewed", func(w *world) { w.again("node", pki.RoleNode, "n1", time.Now().Add(-28*24*time.Hour)) }, Node, "certificate", Warning, "was not renewed"},
		{"no CA", func(w *world) { os.Remove(w.path("ca.pem")) }, Commands, "authority", Fault, "ca.pem"},
		{"no CA key", func(w *world) { os.Remove(w.path("ctl/ca-key.pem")) }, Controller, "authority", Fault, "ca-key.pem"},
		{"a CA near its end", func(w *world) {
			old, err := pki.NewCA("lab-00000001", time.Now().Add(24*time.Hour-time.Until(w.ca.Trust().Expires())))
			must(w.t, err)
			must(w.t, os.WriteFile(w.path("ca.pem"), old.Trust().PEM(), 0o644))
		}, Commands, "authority", Warning, "CA expires on"},
		{"another cluster", func(w *world) {
			other, err := pki.NewCA("other-00000001", time.Now())
			must(w.t, err)
			must(w.t, os.WriteFile(w.path("ca.pem"), other.Trust().PEM(), 0o644))
		}, Commands, "controllers", Fault, "not trusted"},
	}
}

func clusterFaults() []fault {
	return []fault{
		{"no controller", func(w *world) { w.server.Close() }, Commands, "controllers", Fault, "none answers"},
		{"no controller for the node", func(w *world) { w.server.Close() }, Node, "controllers", Fault, "connection refused"},
		{"gctld does not run", func(w *world) { w.server.Close() }, Controller, "gctld", Fault, "nothing answers at"},
		{"one of two", func(w *world) {
			w.write("client.toml", "controllers = [%[1]q, \"127.0.0.1:1\"]\nca_file = \"%[2]s/ca.pem\"\nauth_socket = \"%[2]s/auth.sock\"\n")
		}, Commands, "controllers", Warning, "no answer from 127.0.0.1:1"},
		{"a slow clock", func(w *world) { w.clock = time.Minute }, Commands, "clock", Fault, "this host's clock differs"},
		{"a fast clock", func(w *world) { w.clock = -10 * time.Second }, Node, "clock", Fault, "by 1"},
		{"a controller that is no member", func(w *world) { w.status.Members = w.status.Members[1:]; w.status.Leader = "" }, Commands, "controllers", Warning, "is not a member"},
		{"no member at all", func(w *world) { w.status.Members = nil }, Commands, "cluster", Fault, "no member of the cluster answers"},
		{"members that the file does not name", func(w *world) {
			w.status.Members = append(w.status.Members, &greylagv1.Member{Id: "ctl-3", Address: "127.0.0.1:2", Voter: true, LastContact: durationpb.New(0), MatchIndex: 100_000})
		}, Commands, "controllers", Warning, "the commands know 1 of 2 members; missing: 127.0.0.1:2"},
		{"an incomplete archive", func(w *world) { w.status.ArchiveMissing = "finished jobs 1 to 9: missing" }, Commands, "archive", Warning, "ctl-1 is incomplete: finished jobs 1 to 9"},
		{"no leader", func(w *world) { w.status.Leader = "" }, Commands, "cluster", Fault, "there is no leader"},
		{"a full disk", func(w *world) { w.status.DiskLow = true }, Commands, "cluster", Warning, "almost full"},
		{"another version", func(w *world) { w.status.Version = "v0.1" }, Commands, "version", Warning, "v0.1"},
		{"a member that is away", func(w *world) { w.status.Members[1].LastContact = durationpb.New(time.Minute) }, Commands, "cluster", Warning, "ctl-2"},
		{"an upgrade that waits", func(w *world) { w.status.JournalForm, w.status.NewestForm = 4, 5 }, Commands, "cluster", Warning, "until every controller supports format 5"},
		{"an upgrade that waits for one that is away", func(w *world) {
			w.status.JournalForm, w.status.NewestForm, w.status.Members[1].LastContact = 4, 5, nil
		}, Commands, "cluster", Warning, "cannot ask ctl-2"},
		{"a member that lags", func(w *world) { w.status.Members[1].MatchIndex = 7 }, Commands, "cluster", Warning, "99993 entries behind"},
		{"instances without a lease", func(w *world) { w.status.BurstOrphans = 2 }, Commands, "burst", Warning, "instances in the cloud without a lease: 2"},
		{"offers that are not used", func(w *world) {
			w.leases.Enabled = true
			w.leases.Offers = []*greylagv1.CloudOffer{{Name: "a", Market: "spot"}, {Name: "b", Market: "spot", Fault: "a price of 0"}, {Name: "c", Market: "spot", Paused: timestamppb.Now(), PauseReason: "no capacity"}}
		}, Commands, "burst", Warning, "2 of 3 offers of the cloud are not used, the first: b (spot): a price of 0"},
		{"a budget that is used up", func(w *world) {
			w.leases.Enabled, w.leases.Currency = true, "EUR"
			w.leases.Spend = []*greylagv1.RentalSpend{{Limited: true, Limit: 100_000_000, Spent: 90_000_000}, {Account: "ml", Limited: true, Limit: 100_000_000, Spent: 60_000_000, Committed: 39_500_000}}
		}, Commands, "burst", Warning, "the rental budget of account ml is used up: 60.00 spent and 39.50 committed of 100.00 EUR"},
		{"an unknown node", func(w *world) { w.node = nil }, Node, "gnoded", Fault, "has no node n1"},
		{"a node that is not heard", func(w *world) { w.node.State = greylagv1.NodeState_NODE_STATE_DOWN }, Node, "gnoded", Fault, "DOWN"},
		{"a node with a fault", func(w *world) { w.node.Fault = "containerd 1.4: too old" }, Node, "gnoded", Fault, "too old"},
		{"a drained node", func(w *world) { w.node = &greylagv1.Node{Name: "n1", Drain: true, ReasonBy: "ann", Reason: "fan"} }, Node, "gnoded", Warning, "by ann: fan"},
	}
}

// TestNoPart checks the message on a host that belongs to no cluster.
func TestNoPart(t *testing.T) {
	if _, err := os.Stat("/etc/greylag"); err == nil {
		t.Skip("this host is set up for Greylag: it belongs to a cluster")
	}
	t.Setenv(config.ClientEnv, "")
	wants(t, fault{part: Commands, check: "configuration", level: Fault, found: "belongs to no cluster"}, Examine(t.Context(), Host{}))
}

// TestNoControllerFile checks the advice for a controller whose file was lost: systemd does not start
// it without the file.
func TestNoControllerFile(t *testing.T) {
	x := &exam{part: Controller, systemd: true}
	w := newWorld(t)
	if x.configured("", w.path("absent.toml"), w.path("ctl"), nil) || len(x.findings) != 1 {
		t.Fatalf("%+v", x.findings)
	}
	if f := x.findings[0]; f.Level != Fault || !strings.Contains(f.Found, "absent.toml does not exist") || !strings.Contains(f.Advice, "gctl init") {
		t.Errorf("%+v", f)
	}
}

// TestFullDisk and the next need a file system of their own.
func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount a file system")
	}
	for _, c := range []struct {
		options string
		level   Level
		found   string
	}{{"size=64m", Fault, "64.0 MiB left of"}, {"size=512m", Warning, "512.0 MiB left of"}, {"size=512m,ro", Fault, "read-only"}} {
		w := newWorld(t)
		must(t, os.Mkdir(w.path("data"), 0o755))
		if out, err := exec.Command("mount", "-t", "tmpfs", "-o", c.options, "tmpfs", w.path("data")).CombinedOutput(); err != nil {
			t.Skipf("needs root that may mount: %v, %s", err, out)
		}
		findings := Examine(t.Context(), w.host)
		must(t, exec.Command("umount", w.path("data")).Run())
		for _, part := range []string{Node, Controller} {
			wants(t, fault{part: part, check: "data_dir", level: c.level, found: c.found}, findings)
		}
	}
}

// TestNoControlGroups runs this test once more where none are mounted.
func TestNoControlGroups(t *testing.T) {
	const marker = "GREYLAG_TEST_NO_GROUPS"
	if os.Getenv(marker) != "" {
		x := &exam{part: Node}
		x.groups(false)
		wants(t, fault{part: Node, check: "control groups", level: Fault, found: "no control groups"}, x.findings)
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root, to hide the control groups")
	}
	inside := exec.Command("unshare", "-m", "sh", "-c", `for m in $(awk '/ - cgroup2? / {print $5}' /proc/self/mountinfo); do umount -l "$m"; done; exec "$0" -test.run='^TestNoControlGroups$'`, os.Args[0])
	inside.Env = append(os.Environ(), marker+"=1")
	out, err := inside.CombinedOutput()
	var failed *exec.ExitError
	if err != nil && !(errors.As(err, &failed) && strings.Contains(string(out), "FAIL")) {
		t.Skipf("needs root that may unmount control groups: %v, %s", err, out)
	}
	if err != nil {
		t.Errorf("%s", out)
	}
}
