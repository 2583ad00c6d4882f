package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/test/cluster"
)

// offerOf returns the settings of an offer of 2 GPUs.
func offerOf(name, region string) map[string]any {
	return map[string]any{
		"name": name, "market": "spot", "type": "local", "region": region, "price": "2.00", "cpus": 2, "memory_bytes": 1 << 30,
		"gpus": 2, "gpu_type": "h100", "gpu_memory_bytes": 80 << 30, "boot_seconds": 2,
	}
}

// TestBurstBadInput goes through what providers, nodes and administrators do wrong, on one cluster. Its instances boot and
// do not join, except in the last step.
func TestBurstBadInput(t *testing.T) {
	t.Parallel()
	needsRoot(t, "instances with namespaces of their own")
	ctx := limited(t, 6*hang)
	settings := func(join bool, regions ...string) map[string]any {
		s := map[string]any{"never_join": !join, "max_instances": 20}
		if join {
			s["missing_gpus"] = 1
		}
		var offers []any
		for _, region := range regions {
			offers = append(offers, offerOf("local-"+region, region))
		}
		s["offers"] = offers
		return s
	}
	x := newScripted(t, cluster.Options{Nodes: 1}, settings(false, "a", "b", "c"), map[string]string{"fault-offers": "free"})
	policy := leasing(`boot_timeout = "1m"`, `boot_timeout = "30m"`)
	x.must(x.Apply(ctx, policy))
	x.badPrices(ctx)
	x.badLaunches(ctx)
	x.badJoins(ctx)
	y := x.secondCluster(ctx)
	x.lasts(ctx, launchFaults-1)

	x.must(x.Apply(ctx, strings.Replace(policy, `monthly_limit = "500"`, `monthly_limit = "1"`, 1)))
	id := x.submit("--burst=only")
	x.until("the budget keeps the job from the cloud", func() (bool, error) {
		text := x.ok(tester, "gctl", "why", ref(id))
		return strings.Contains(text, "exceeds the 0.00 USD left in the budget of the cluster"), fmt.Errorf("gctl why: %s", text)
	})
	x.lasts(ctx, launchFaults-1)
	x.must(x.Apply(ctx, policy))
	x.ok(tester, "gcancel", ref(id))

	x.set(t, settings(false, "a", "c")) // region b disappears
	id = x.submit("--burst=only", "--burst-regions=b")
	x.pauses(ctx, "local-b", "no offer local-b")
	x.ok(tester, "gcancel", ref(id))
	x.lasts(ctx, launchFaults-1)

	x.set(t, settings(true, "a", "c"))
	id = x.submit("--burst=only", "--burst-regions=c")
	x.pauses(ctx, "local-c", "reports 1 of 2 GPUs")
	x.ok(tester, "gcancel", ref(id))
	x.endsAll(ctx, y)
	x.audit(ctx)
}

// pauses waits until an offer is paused for a reason.
func (x *leased) pauses(ctx context.Context, offer, why string) {
	x.t.Helper()
	x.until("the offer "+offer+" is paused", func() (bool, error) {
		answer, err := x.client.Cluster().ListLeases(ctx, &greylagv1.ListLeasesRequest{})
		if err != nil {
			return false, err
		}
		for _, o := range answer.Offers {
			if o.Name == offer && o.Paused != nil {
				if !strings.Contains(o.PauseReason, why) {
					x.t.Errorf("the offer %s is paused: %s", offer, o.PauseReason)
				}
				return true, nil
			}
		}
		return false, fmt.Errorf("%v", answer.Offers)
	})
}

// lasts checks that a number of leases wait for their nodes to join, and that no other instance runs.
func (x *leased) lasts(ctx context.Context, n int) {
	x.t.Helper()
	x.until(fmt.Sprint(n, " leases wait for their nodes"), func() (bool, error) {
		launched, live := 0, 0
		for _, l := range x.leases(ctx) {
			if l.State == greylagv1.LeaseState_LEASE_STATE_LAUNCHED {
				launched++
			}
			if l.State != greylagv1.LeaseState_LEASE_STATE_GONE {
				live++
			}
		}
		return launched == n && live == n, fmt.Errorf("%d of %d", launched, live)
	})
	x.running(ctx, n)
}

// running waits until a number of instances of the cluster run. Its leases explain them all.
func (x *leased) running(ctx context.Context, n int) {
	x.t.Helper()
	leased := map[string]bool{}
	for _, l := range x.leases(ctx) {
		leased[l.Instance] = true
	}
	own := x.clusterID()
	x.until(fmt.Sprint(n, " instances run"), func() (bool, error) {
		var ids []string
		for _, one := range x.instances() {
			if one.Cluster == own && one.EndedAt.IsZero() {
				ids = append(ids, one.ID)
				if !leased[one.ID] {
					x.t.Errorf("instance %s runs without a lease", one.ID)
				}
			}
		}
		return len(ids) == n, fmt.Errorf("instances %v", ids)
	})
}

// clusterID returns the ID of the cluster.
func (x *leased) clusterID() string {
	x.t.Helper()
	answer, err := x.client.Cluster().GetStatus(x.t.Context(), &greylagv1.GetStatusRequest{})
	x.must(err)
	return answer.ClusterId
}

// badPrices: prices of 0 and 10^12, and prices of long ago, are not used, and leasing begins when the prices are right.
func (x *leased) badPrices(ctx context.Context) {
	x.t.Helper()
	ctl := x.Controller(0)
	for _, fault := range []struct{ why, next string }{
		{`price \"0\" is out of range`, "priceless"}, {`price \"1000000000000\" is out of range`, "past"},
		{`priced_at 2001-01-01T00:00:00Z is more than a day`, "garbage"}, {`invalid character '<'`, ""},
	} {
		x.until("the log says "+fault.why, func() (bool, error) { return strings.Contains(ctl.LogTail(1<<20), fault.why), nil })
		answer, err := x.client.Cluster().ListLeases(ctx, &greylagv1.ListLeasesRequest{})
		x.must(err)
		for _, o := range answer.Offers {
			if o.GetFault() == "" {
				x.t.Errorf("while the log says %q: offer %v", fault.why, o)
			}
		}
		x.must(ctl.Stop())
		if fault.next != "" {
			x.put(x.t, "fault-offers", fault.next)
		}
		x.must(ctl.Start())
	}
}

// launchFaults is the number of launches that badLaunches makes.
const launchFaults = 8

// badLaunches: whatever the provider does with a request, it is repeated until its instance is known, which is rented once.
func (x *leased) badLaunches(ctx context.Context) {
	x.t.Helper()
	for i, fault := range []string{"garbage", "hangs", "empty", "other", "lost", "child", "priceless", "past"} {
		x.put(x.t, fmt.Sprint("fault-launch-", i+1), fault)
	}
	for range launchFaults {
		x.submit("--burst=only", "--burst-regions=a")
	}
	x.until("all leases have instances", func() (bool, error) {
		all := x.leases(ctx)
		launched := slices.DeleteFunc(slices.Clone(all), func(l *greylagv1.Lease) bool { return l.State != greylagv1.LeaseState_LEASE_STATE_LAUNCHED })
		return len(launched) == launchFaults, fmt.Errorf("%v", all)
	})
	x.lasts(ctx, launchFaults)
	if made := x.instances(); len(made) != launchFaults {
		x.t.Errorf("%d instances were made: %v", len(made), made)
	}
	log := x.Controller(0).LogTail(1 << 20)
	for launch, why := range []string{"", "invalid character", "no answer in time", "wrong number of instances", "another launch", "try later", "", "is out of range", "launched_at 2001"} {
		what, of := "launch failed", fmt.Sprint(" launch=", launch, " ")
		if launch >= launchFaults-1 { // the field is ignored, and the launch succeeds
			what, of = "a field of an instance that is ignored", " instance="
		}
		found := slices.ContainsFunc(strings.Split(log, "\n"), func(line string) bool {
			return strings.Contains(line, what) && strings.Contains(line, of) && strings.Contains(line, why)
		})
		if why != "" && !found {
			x.t.Errorf("the log does not say %q of launch %d", why, launch)
		}
	}
	for _, file := range []string{"processes", "child"} {
		text, err := os.ReadFile(filepath.Join(x.dir, file))
		x.must(err)
		for _, pid := range strings.Fields(string(text)) {
			x.until("process "+pid+" of the provider has ended", func() (bool, error) {
				stat, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
				return err != nil || strings.Contains(string(stat), ") Z "), nil
			})
		}
	}
}

// joinLease joins as the instance of a lease with the user data and the identity document of folders.
func (x *leased) joinLease(name string, l *greylagv1.Lease, data, identity string) cluster.Result {
	x.t.Helper()
	dir := filepath.Join(x.Dir, "join-"+name)
	x.must(os.MkdirAll(filepath.Join(dir, "data"), 0o755))
	config := filepath.Join(dir, "gnoded.toml")
	x.must(os.WriteFile(config, fmt.Appendf(nil, "data_dir = %q\nstate_dir = %q\npki_dir = %q\nlease_file = %q\n",
		filepath.Join(dir, "data"), filepath.Join(dir, "state"), filepath.Join(dir, "pki"), filepath.Join(dir, "data", "lease.json")), 0o644))
	return x.run(tester, "gctl", "join", "--lease", filepath.Join(data, "user-data.json"), "--instance", l.Instance, "--identity", "file:"+filepath.Join(identity, "identity"), "--no-start", "--config", config,
		"--client", filepath.Join(dir, "client.toml"), "--ca", filepath.Join(dir, "ca.pem"))
}

// badJoins: a token is good for each lease of its launch once, for no other lease, not after the end of its lease, and not
// with the identity of another instance.
func (x *leased) badJoins(ctx context.Context) {
	x.t.Helper()
	all := x.leases(ctx)
	of := func(i int) string { return filepath.Join(x.dir, "instances", all[i].Instance) }
	kept := filepath.Join(x.dir, "kept")
	x.must(os.Mkdir(kept, 0o700))
	for _, name := range []string{"user-data.json", "identity"} {
		text, err := os.ReadFile(filepath.Join(of(1), name))
		x.must(errors.Join(err, os.WriteFile(filepath.Join(kept, name), text, 0o600)))
	}
	refused := func(name, why string, r cluster.Result) {
		if r.Exit == 0 || !strings.Contains(r.Stderr, why) {
			x.t.Errorf("%s: exit status %d: %s, want %q", name, r.Exit, r.Stderr, why)
		}
	}
	refused("another lease's token", "does not belong to the launch of the join token", x.joinLease("other", all[1], of(0), of(1)))
	refused("another instance's identity", "identity", x.joinLease("identity", all[0], of(0), of(1)))
	if r := x.joinLease("first", all[0], of(0), of(0)); r.Exit != 0 {
		x.t.Errorf("the first join: %s", r.Stderr)
	}
	refused("a second join", "the join token was used by cloud-1", x.joinLease("second", all[0], of(0), of(0)))
	x.ok(tester, "gcancel", all[1].Job)
	x.ok(tester, "gctl", "burst", "end", "--now", "cloud-2")
	refused("after the end", "end the instance", x.joinLease("late", all[1], kept, kept))
}

// secondCluster starts a cluster in the same account of the cloud, which rents an instance with the same numbers.
func (x *leased) secondCluster(ctx context.Context) *leased {
	x.t.Helper()
	y := &leased{dir: x.dir}
	y.start(x.t, cluster.Options{Burst: x.dir})
	y.submit("--burst=only")
	y.until("the second cluster has an instance", func() (bool, error) {
		all := y.leases(ctx)
		return len(all) == 1 && all[0].State == greylagv1.LeaseState_LEASE_STATE_LAUNCHED, fmt.Errorf("%v", all)
	})
	return y
}

// orphan rents an instance with the tag of the cluster and of no launch, ten minutes ago.
func (x *leased) orphan() (id string) {
	x.t.Helper()
	cmd := exec.Command(filepath.Join(x.Programs(), "greylag-burst-local"), "--dir", x.dir, "launch")
	cmd.Stdin = strings.NewReader(fmt.Sprintf(`{"version":1,"cluster":%q,"deadline":"2100-01-01T00:00:00Z","launch":{"client_token":"orphan","launch":900,"try":1,"nodes":1,
"offer":"local-a","type":"local","region":"a","market":"spot","max_price":"2.00","lifetime_seconds":3600}}`, x.clusterID()))
	text, err := cmd.Output()
	var made struct {
		Instances []instance `json:"instances"`
	}
	x.must(errors.Join(err, json.Unmarshal(text, &made)))
	id = made.Instances[0].ID
	file := filepath.Join(x.dir, "instances", id, "instance.json")
	text, err = os.ReadFile(file)
	x.must(err)
	now, past := regexp.MustCompile(`"launched_at":"[^"]*"`), fmt.Sprintf(`"launched_at":%q`, time.Now().Add(-10*time.Minute).UTC().Format(time.RFC3339))
	x.must(os.WriteFile(file, now.ReplaceAll(text, []byte(past)), 0o644))
	return id
}

// endsAll ends all leases. All instances of the cluster end, also one without a lease, and those of the other one run on.
func (x *leased) endsAll(ctx context.Context, y *leased) {
	x.t.Helper()
	x.orphan()
	jobs, leases := []string{"--user=root"}, []string{"burst", "end", "--now"}
	x.ok(tester, "gcancel", jobs...)
	for _, l := range x.leases(ctx) {
		leases = append(leases, l.Node)
	}
	x.ok(tester, "gctl", leases...)
	x.ended(ctx)
	x.running(ctx, 0)
	y.lasts(ctx, 1)
	if l := y.leases(ctx)[0]; l.Launch != 1 || l.Try != 1 {
		x.t.Errorf("the lease of the second cluster: %v", l)
	}
	y.ok(tester, "gcancel", "--user=root")
	y.ok(tester, "gctl", "burst", "end", "--now", "cloud-1")
	y.ended(ctx)
	y.running(ctx, 0)
}
