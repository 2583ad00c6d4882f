package provider

import (
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/burst/aws/internal/ec2wire"
	"github.com/greylag/greylag/internal/burst"
)

// launchAs launches a node as another launch, or for another cluster.
func (c *cloud) launchAs(cluster, token string, launch uint64) burst.Instance {
	c.t.Helper()
	q := spotLaunch(1)
	q.ClientToken, q.Launch = token, launch
	p := New(c.cfg, cluster, &c.messages)
	p.now, p.retryer = c.Provider.now, withoutDelay
	list, err := p.launch(c.t.Context(), q)
	if err != nil {
		c.t.Fatal(err)
	}
	return list[0]
}

// TestListPages: all pages are read, and only instances of launches of the cluster are listed.
func TestListPages(t *testing.T) {
	c := newCloud(t)
	c.PageSize = 2
	c.mustLaunch(5)
	c.launchAs("c2", "greylag-c2-7-1", 7)
	all := c.mustList()
	if len(all) != 5 || c.Calls("DescribeInstances") != 3 || c.Calls("DescribeSpotInstanceRequests") != 3 {
		t.Errorf("%d instances after %d and %d calls", len(all), c.Calls("DescribeInstances"), c.Calls("DescribeSpotInstanceRequests"))
	}
	for _, i := range all {
		if i.Cluster != testCluster || i.State != burst.StateRunning || !strings.HasPrefix(i.Address, "10.0.0.") || i.Type != "g5.xlarge" {
			t.Errorf("instance %+v", i)
		}
	}
}

// TestListIgnoresOtherTags: an instance that has the tag of the cluster, but no launch, is left alone.
func TestListIgnoresOtherTags(t *testing.T) {
	c := newCloud(t)
	one := c.mustLaunch(1)[0]
	delete(c.Instances()[0].Tags, tagLaunch) // copies share the tags
	if all := c.mustList(); len(all) != 0 || !strings.Contains(c.messages.String(), one.ID) {
		t.Errorf("instances %+v, messages %s", all, c.messages.String())
	}
	if ended, err := c.terminate(t.Context(), []string{one.ID}); err != nil || len(ended) != 0 || c.Calls("TerminateInstances") != 0 {
		t.Errorf("terminated %v, %v", ended, err)
	}
}

// TestSlowBoot: an instance is pending, running, ending and terminated, and is forgotten an hour later.
func TestSlowBoot(t *testing.T) {
	c := newCloud(t)
	c.BootTime, c.EndTime = time.Minute, time.Minute
	id := c.mustLaunch(1)[0].ID
	for _, want := range []string{burst.StatePending, burst.StateRunning, burst.StateRunning} {
		if all := c.mustList(); len(all) != 1 || all[0].State != want {
			t.Errorf("after %v: %+v, want %s", c.now.Sub(start), all, want)
		}
		c.now = c.now.Add(time.Minute)
	}
	c.PowerOff(id)
	for _, want := range []string{burst.StateEnding, burst.StateTerminated} {
		if all := c.mustList(); len(all) != 1 || all[0].State != want || all[0].Interrupted || all[0].Cost != "" {
			t.Errorf("after %v: %+v, want %s", c.now.Sub(start), all, want)
		}
		c.now = c.now.Add(time.Minute)
	}
	c.now = c.now.Add(time.Hour)
	if all := c.mustList(); len(all) != 0 {
		t.Errorf("after an hour: %+v", all)
	}
}

// TestLateVisibility: what EC2 does not list yet is neither reported as ended nor terminated.
func TestLateVisibility(t *testing.T) {
	c := newCloud(t)
	c.VisibleAfter = 10 * time.Second
	id := c.mustLaunch(1)[0].ID
	if all := c.mustList(); len(all) != 0 {
		t.Errorf("instances %+v", all)
	}
	if again := c.mustLaunch(1)[0]; again.ID != id {
		t.Errorf("the repeated launch has %s, not %s", again.ID, id)
	}
	if ended, err := c.terminate(t.Context(), []string{id}); err != nil || len(ended) != 0 {
		t.Errorf("terminated %v, %v", ended, err)
	}
	c.now = c.now.Add(10 * time.Second)
	if ended, err := c.terminate(t.Context(), []string{id}); err != nil || len(ended) != 1 || ended[0].State != burst.StateTerminated {
		t.Errorf("terminated %v, %v", ended, err)
	}
}

// TestReclaim: the notice has its deadline, and the end within the first hour costs nothing.
func TestReclaim(t *testing.T) {
	for _, test := range []struct {
		after time.Duration
		cost  string
	}{{30 * time.Minute, "0"}, {59 * time.Minute, ""}, {3 * time.Hour, ""}} {
		c := newCloud(t)
		c.EndTime = time.Minute
		id := c.mustLaunch(1)[0].ID
		c.now = start.Add(test.after)
		c.Reclaim(id)
		c.now = c.now.Add(time.Minute)
		if i := c.mustList()[0]; i.State != burst.StateRunning || !i.ReclaimAt.Equal(start.Add(test.after+noticeTime)) || i.Interrupted {
			t.Errorf("after the notice: %+v", i)
		}
		c.now = c.now.Add(time.Minute)
		if i := c.mustList()[0]; i.State != burst.StateEnding || !i.Interrupted || i.Cost != "" || !i.ReclaimAt.IsZero() {
			t.Errorf("at the end: %+v", i)
		}
		c.now = c.now.Add(time.Minute)
		if i := c.mustList()[0]; i.State != burst.StateTerminated || !i.Interrupted || i.Cost != test.cost {
			t.Errorf("after the end: %+v, want the cost %q", i, test.cost)
		}
	}
}

// TestTerminateAfterNotice: AWS charges for what the site itself ends.
func TestTerminateAfterNotice(t *testing.T) {
	c := newCloud(t)
	id := c.mustLaunch(1)[0].ID
	c.Reclaim(id)
	if _, err := c.terminate(t.Context(), []string{id}); err != nil {
		t.Fatal(err)
	}
	c.now = c.now.Add(time.Hour / 2)
	if i := c.mustList()[0]; i.State != burst.StateTerminated || i.Interrupted || i.Cost != "" {
		t.Errorf("instance %+v", i)
	}
}

// TestTerminate: only instances of the cluster end, unknown ones are left out, and a repeated call changes nothing.
func TestTerminate(t *testing.T) {
	c := newCloud(t)
	own, foreign := c.mustLaunch(2), c.launchAs("c2", "greylag-c2-7-1", 7)
	ids := []string{own[0].ID, foreign.ID, "i-0123456789abcdef0", own[1].ID}
	for range 2 {
		ended, err := c.terminate(t.Context(), ids)
		if err != nil || len(ended) != 2 || ended[0].State != burst.StateTerminated || ended[1].State != burst.StateTerminated {
			t.Fatalf("terminated %+v, %v", ended, err)
		}
	}
	if n := c.Calls("TerminateInstances"); n != 1 {
		t.Errorf("%d calls", n)
	}
	for _, i := range c.Instances() {
		if i.Ended.IsZero() != (i.ID == foreign.ID) {
			t.Errorf("instance %+v", i)
		}
	}
}

// TestTerminateProtected: an instance that cannot be terminated keeps no other one running.
func TestTerminateProtected(t *testing.T) {
	c := newCloud(t)
	all := c.mustLaunch(3)
	c.Protect(all[1].ID)
	if _, err := c.terminate(t.Context(), []string{all[0].ID, all[1].ID, all[2].ID}); err != nil || !strings.Contains(c.messages.String(), all[1].ID+" cannot be terminated") {
		t.Errorf("%v, messages %s", err, c.messages.String())
	}
	for _, i := range c.mustList() {
		if ended := i.State == burst.StateTerminated; ended != (i.ID != all[1].ID) {
			t.Errorf("instance %+v", i)
		}
	}
	if _, err := c.terminate(t.Context(), []string{all[1].ID}); err == nil {
		t.Error("a protected instance was terminated")
	}
}

// TestRegions: a list covers all regions, fails if one does not answer, and an instance ends in its own region.
func TestRegions(t *testing.T) {
	setCredentials(t)
	west := newServer(func() time.Time { return start })
	west.Region = "us-west-2"
	c := newCloud(t, "[[region]]\n", "[[region]]\nname = \"us-west-2\"\nendpoint = \""+serve(t, west)+"\"\n\n[[region]]\n")
	id := c.mustLaunch(1)[0].ID
	if all := c.mustList(); len(all) != 1 || west.Calls("DescribeInstances") != 1 {
		t.Errorf("instances %+v", all)
	}
	if ended, err := c.terminate(t.Context(), []string{id}); err != nil || len(ended) != 1 || west.Calls("TerminateInstances") != 0 {
		t.Errorf("terminated %v, %v", ended, err)
	}
	west.Inject(ec2wire.Fault{Code: "InternalError", Status: 500})
	_, err := c.list(t.Context())
	wantFailure(t, err, burst.FailureTryLater, burst.ExitTryLater)
	if !strings.Contains(err.Error(), "region us-west-2") {
		t.Errorf("the error names no region: %v", err)
	}
}

// TestConsole: the console output is decoded; that of a foreign instance is not read.
func TestConsole(t *testing.T) {
	c := newCloud(t)
	id := c.mustLaunch(1)[0].ID
	if text, err := c.console(t.Context(), id); err != nil || text != "booting g5.xlarge\n"+id+" login:" {
		t.Errorf("console %q, %v", text, err)
	}
	c.Inject(ec2wire.Fault{Action: "GetConsoleOutput", Code: "UnsupportedOperation", Times: 1})
	if text, err := c.console(t.Context(), id); err != nil || text == "" {
		t.Errorf("console without the latest output %q, %v", text, err)
	}
	foreign := c.launchAs("c2", "greylag-c2-7-1", 7)
	_, err := c.console(t.Context(), foreign.ID)
	wantFailure(t, err, burst.FailureNotFound, burst.ExitPermanent)
}
