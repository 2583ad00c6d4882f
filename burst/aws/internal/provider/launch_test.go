package provider

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"testing"
	"time"

	"github.com/greylag/greylag/burst/aws/internal/ec2wire"
	"github.com/greylag/greylag/burst/aws/internal/settings"
	"github.com/greylag/greylag/internal/burst"
)

// TestLaunchRequest: the request has the limits, tags and user data of the question, and the instance ends itself.
func TestLaunchRequest(t *testing.T) {
	c := newCloud(t)
	list := c.mustLaunch(2)
	for i, got := range c.Instances() {
		if list[i].ID != got.ID || list[i].Cluster != testCluster || list[i].Launch != 7 || list[i].Try != 1 || !list[i].LaunchedAt.Equal(start) {
			t.Errorf("instance %+v", list[i])
		}
		want := map[string]string{tagCluster: testCluster, tagLaunch: "7", tagTry: "1", tagLifetime: "7200"}
		if got.Zone != "us-east-1a" || got.Spot == "" || got.MaxPrice != "0.48" || !maps.Equal(got.Tags, want) {
			t.Errorf("record %+v", got)
		}
		text, _ := base64.StdEncoding.DecodeString(got.UserData)
		var data burst.UserData
		if err := json.Unmarshal(text, &data); err != nil || data.Token != "t0" || data.Launch != 7 || len(data.Controllers) != 1 {
			t.Errorf("user data %s: %v", text, err)
		}
		for key, value := range map[string]string{
			"InstanceInitiatedShutdownBehavior": "terminate", "MinCount": "2", "MaxCount": "2", "MetadataOptions.HttpTokens": "required",
			"MetadataOptions.HttpPutResponseHopLimit": "1", "InstanceMarketOptions.SpotOptions.SpotInstanceType": "one-time",
			"LaunchTemplate.LaunchTemplateId": "lt-1", "TagSpecification.3.ResourceType": "spot-instances-request", "ImageId": "",
		} {
			if got.Request.Get(key) != value {
				t.Errorf("%s is %q, want %q", key, got.Request.Get(key), value)
			}
		}
	}
}

// TestLaunchOnDemand: the program itself compares the price with the limit.
func TestLaunchOnDemand(t *testing.T) {
	c := newCloud(t, "[[region.zone]]\nname = \"us-east-1a\"", "image = \"ami-9\"\nsecurity_groups = [\"sg-1\"]\ninstance_profile = \"node\"\n\n[[region.zone]]\nname = \"us-east-1a\"")
	q := spotLaunch(1)
	q.Market, q.MaxPrice = settings.OnDemand, "1.00"
	_, err := c.launch(t.Context(), q)
	wantFailure(t, err, burst.FailurePrice, burst.ExitPermanent)
	q.MaxPrice = "1.006"
	if _, err := c.launch(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	all := c.Instances()
	if len(all) != 1 || all[0].Spot != "" || all[0].Request.Get("ImageId") != "ami-9" || all[0].Request.Get("SecurityGroupId.1") != "sg-1" ||
		all[0].Request.Get("IamInstanceProfile.Name") != "node" {
		t.Errorf("records %+v", all)
	}
}

// TestRepeatedLaunch: a client token stands for one launch, also after its instances have ended.
func TestRepeatedLaunch(t *testing.T) {
	c := newCloud(t)
	first := c.mustLaunch(1)[0]
	if again := c.mustLaunch(1)[0]; again.ID != first.ID || len(c.Instances()) != 1 {
		t.Errorf("the repeated launch has %s, the first %s, of %d", again.ID, first.ID, len(c.Instances()))
	}
	other := spotLaunch(1)
	other.MaxPrice = "0.47"
	_, err := c.launch(t.Context(), other)
	wantFailure(t, err, burst.FailureMismatch, burst.ExitPermanent)
	next := spotLaunch(1)
	next.ClientToken, next.Try = "greylag-c1-7-2", 2
	if list, err := c.launch(t.Context(), next); err != nil || list[0].ID == first.ID || list[0].Try != 2 {
		t.Errorf("the next try has %v, %v", list, err)
	}
	if _, err := c.terminate(t.Context(), []string{first.ID}); err != nil {
		t.Fatal(err)
	}
	if ended := c.mustLaunch(1)[0]; ended.ID != first.ID || ended.State != burst.StateTerminated || len(c.Instances()) != 2 {
		t.Errorf("after its end the launch has %+v, of %d", ended, len(c.Instances()))
	}
	c.now = c.now.Add(2 * time.Hour) // EC2 forgets it
	_, err = c.launch(t.Context(), spotLaunch(1))
	wantFailure(t, err, burst.FailureCapacity, burst.ExitPermanent)
}

// TestLostAnswer: the answer of a launch that had success is lost, in one call and in all calls of a program.
func TestLostAnswer(t *testing.T) {
	c := newCloud(t)
	c.Inject(ec2wire.Fault{Action: "RunInstances", Lost: true, Times: 1})
	c.mustLaunch(1)
	if n := len(c.Instances()); n != 1 || c.Calls("RunInstances") != 2 {
		t.Fatalf("%d instances after %d calls", n, c.Calls("RunInstances"))
	}
	c = newCloud(t)
	c.Inject(ec2wire.Fault{Action: "RunInstances", Lost: true, Times: maxAttempts})
	_, err := c.launch(t.Context(), spotLaunch(2))
	wantFailure(t, err, burst.FailureTryLater, burst.ExitTryLater)
	if list := c.mustLaunch(2); len(c.Instances()) != 2 || len(c.mustList()) != 2 {
		t.Errorf("the repeated call has %v, of %d", list, len(c.Instances()))
	}
}

// TestDeniedAfterLostAnswer: an error of permissions does not show that an earlier call had no success.
func TestDeniedAfterLostAnswer(t *testing.T) {
	c := newCloud(t)
	c.Inject(ec2wire.Fault{Action: "RunInstances", Lost: true, Times: 1})
	c.Inject(ec2wire.Fault{Action: "RunInstances", Code: "UnauthorizedOperation", Status: 403})
	c.mustLaunch(1)
	c.Clear()
	c.Inject(ec2wire.Fault{Code: "UnauthorizedOperation", Status: 403})
	_, err := c.launch(t.Context(), spotLaunch(1))
	wantFailure(t, err, burst.FailureDenied, burst.ExitTryLater)
	if n := len(c.Instances()); n != 1 {
		t.Errorf("%d instances", n)
	}
}

// TestErrorKinds: each error of EC2 has its kind, nothing is launched, and an error of capacity is not repeated.
func TestErrorKinds(t *testing.T) {
	for _, test := range []struct {
		code         string
		status       int
		kind         string
		exit, called int
	}{
		{"InsufficientInstanceCapacity", 500, burst.FailureCapacity, 1, 1},
		{"UnfulfillableCapacity", 500, burst.FailureCapacity, 1, 1},
		{"InsufficientFreeAddressesInSubnet", 400, burst.FailureCapacity, 1, 1},
		{"ReservationCapacityExceeded", 400, burst.FailureCapacity, 1, 1},
		{"Unsupported", 400, burst.FailureCapacity, 1, 1},
		{"SpotMaxPriceTooLow", 400, burst.FailurePrice, 1, 1},
		{"MaxSpotInstanceCountExceeded", 400, burst.FailureQuota, 1, 1},
		{"MaxFleetCountExceeded", 400, burst.FailureQuota, 1, 1},
		{"VcpuLimitExceeded", 400, burst.FailureQuota, 1, 1},
		{"InstanceLimitExceeded", 400, burst.FailureQuota, 1, 1},
		{"UnauthorizedOperation", 403, burst.FailureDenied, 1, 1},
		{"AuthFailure", 401, burst.FailureDenied, 1, 1},
		{"OptInRequired", 401, burst.FailureDenied, 1, 1},
		{"IdempotentParameterMismatch", 400, burst.FailureMismatch, 1, 1},
		{"RequestLimitExceeded", 503, burst.FailureThrottled, 75, maxAttempts},
		{"InternalError", 500, burst.FailureTryLater, 75, maxAttempts},
		{"Unavailable", 503, burst.FailureTryLater, 75, maxAttempts},
		{"SomethingNew", 503, burst.FailureTryLater, 75, maxAttempts},
		{"InvalidParameterValue", 400, burst.FailureInvalid, 1, 1},
		{"InvalidAMIID.NotFound", 400, burst.FailureInvalid, 1, 1},
		{"InvalidSubnetID.NotFound", 400, burst.FailureInvalid, 1, 1},
	} {
		t.Run(test.code, func(t *testing.T) {
			c := newCloud(t)
			c.Inject(ec2wire.Fault{Action: "RunInstances", Code: test.code, Status: test.status})
			_, err := c.launch(t.Context(), spotLaunch(1))
			wantFailure(t, err, test.kind, test.exit)
			if n := c.Calls("RunInstances"); n != test.called || len(c.Instances()) != 0 {
				t.Errorf("%d calls, want %d; %d instances", n, test.called, len(c.Instances()))
			}
			c.Clear()
			if test.kind != burst.FailureMismatch {
				c.mustLaunch(1)
			}
		})
	}
}

// TestCapacityOfOneZone: a zone without capacity does not affect the offer of another.
func TestCapacityOfOneZone(t *testing.T) {
	c := newCloud(t)
	c.Inject(ec2wire.Fault{Action: "RunInstances", Zone: "us-east-1a", Type: "g5.xlarge", Code: "InsufficientInstanceCapacity", Status: 500})
	_, err := c.launch(t.Context(), spotLaunch(1))
	wantFailure(t, err, burst.FailureCapacity, burst.ExitPermanent)
	q := spotLaunch(1)
	q.Offer, q.ClientToken, q.Try = "g5.xlarge/us-east-1b", "greylag-c1-7-2", 2
	if _, err := c.launch(t.Context(), q); err != nil {
		t.Error(err)
	}
}

// TestThrottledLaunch: the SDK repeats throttled calls.
func TestThrottledLaunch(t *testing.T) {
	c := newCloud(t)
	c.Inject(ec2wire.Fault{Code: "RequestLimitExceeded", Status: 503, Times: maxAttempts - 1})
	c.mustLaunch(1)
}

// TestSpotPriceAboveLimit: EC2 compares the spot price with the limit of the question.
func TestSpotPriceAboveLimit(t *testing.T) {
	c := newCloud(t)
	for _, limit := range []string{"0.2", "0.0009", "0.000001"} {
		q := spotLaunch(1)
		q.MaxPrice = limit
		_, err := c.launch(t.Context(), q)
		wantFailure(t, err, burst.FailurePrice, burst.ExitPermanent)
	}
}

// TestPartialLaunch: a part of a launch is terminated, and refused once it has ended.
func TestPartialLaunch(t *testing.T) {
	c := newCloud(t)
	c.EndTime = time.Minute
	c.Inject(ec2wire.Fault{Action: "RunInstances", Most: 1})
	for range 2 {
		_, err := c.launch(t.Context(), spotLaunch(2))
		wantFailure(t, err, burst.FailureCapacity, burst.ExitTryLater)
	}
	c.now = c.now.Add(time.Minute)
	_, err := c.launch(t.Context(), spotLaunch(2))
	wantFailure(t, err, burst.FailureCapacity, burst.ExitPermanent)
	if list := c.mustList(); len(list) != 1 || list[0].State != burst.StateTerminated {
		t.Errorf("instances %+v", list)
	}
}

// TestPartialLaunchThatCannotEnd: the outcome is unknown until the instances of a partial launch have ended.
func TestPartialLaunchThatCannotEnd(t *testing.T) {
	c := newCloud(t)
	c.Inject(ec2wire.Fault{Action: "RunInstances", Most: 1, Times: 1})
	c.Inject(ec2wire.Fault{Action: "TerminateInstances", Code: "UnauthorizedOperation", Status: 403})
	_, err := c.launch(t.Context(), spotLaunch(2))
	wantFailure(t, err, burst.FailureTryLater, burst.ExitTryLater)
}

// TestUnknownOffers: what is not in the configuration is not launched, and no call is made.
func TestUnknownOffers(t *testing.T) {
	c := newCloud(t, "types = [", "markets = [\"spot\"]\ntypes = [")
	for name, change := range map[string]func(*burst.LaunchQuestion){
		"region": func(q *burst.LaunchQuestion) { q.Region = "eu-west-1" },
		"zone":   func(q *burst.LaunchQuestion) { q.Offer = "g5.xlarge/us-east-1c" },
		"type":   func(q *burst.LaunchQuestion) { q.Type, q.Offer = "g6.xlarge", "g6.xlarge/us-east-1a" },
		"other":  func(q *burst.LaunchQuestion) { q.Type = "p5.48xlarge" },
		"market": func(q *burst.LaunchQuestion) { q.Market = settings.OnDemand },
	} {
		q := spotLaunch(1)
		change(q)
		_, err := c.launch(t.Context(), q)
		t.Log(name, err)
		wantFailure(t, err, burst.FailureNotFound, burst.ExitPermanent)
	}
	for name, change := range map[string]func(*burst.LaunchQuestion){
		"nodes":    func(q *burst.LaunchQuestion) { q.Nodes = 0 },
		"token":    func(q *burst.LaunchQuestion) { q.ClientToken = "" },
		"price":    func(q *burst.LaunchQuestion) { q.MaxPrice = "0" },
		"no price": func(q *burst.LaunchQuestion) { q.MaxPrice = "cheap" },
		"lifetime": func(q *burst.LaunchQuestion) { q.LifetimeSeconds = 0 },
	} {
		q := spotLaunch(1)
		change(q)
		_, err := c.launch(t.Context(), q)
		t.Log(name, err)
		wantFailure(t, err, burst.FailureInvalid, burst.ExitPermanent)
	}
	if n := c.Calls("RunInstances"); n != 0 {
		t.Errorf("%d calls", n)
	}
}

// TestHangingLaunch: at the deadline the outcome of a launch is unknown.
func TestHangingLaunch(t *testing.T) {
	c := newCloud(t)
	c.cfg.Regions[0].Endpoint = serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the server sees the end of a connection only after the body
		<-r.Context().Done()
	}))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := c.launch(ctx, spotLaunch(1))
	wantFailure(t, err, burst.FailureTryLater, burst.ExitTryLater)
}

// TestForeignAnswers: an answer that is not EC2's, such as that of a proxy, leaves the outcome unknown.
func TestForeignAnswers(t *testing.T) {
	for _, answer := range []struct {
		status int
		text   string
	}{{200, "<html>log in</html>"}, {200, ""}, {502, "bad gateway"}, {403, "blocked"}, {200, "<RunInstancesResponse><instancesSet>"}} {
		c := newCloud(t)
		c.cfg.Regions[0].Endpoint = serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(answer.status)
			_, _ = io.WriteString(w, answer.text)
		}))
		if list, err := c.launch(t.Context(), spotLaunch(1)); err == nil || classify(err).exitStatus() != burst.ExitTryLater {
			t.Errorf("a launch with the answer %d %q: %v, %v", answer.status, answer.text, list, err)
		}
		if list, err := c.list(t.Context()); err == nil || classify(err).exitStatus() != burst.ExitTryLater {
			t.Errorf("a list with the answer %d %q: %v, %v", answer.status, answer.text, list, err)
		}
	}
}
