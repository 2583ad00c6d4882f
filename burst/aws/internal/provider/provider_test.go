package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/greylag/greylag/burst/aws/internal/ec2wire"
	"github.com/greylag/greylag/burst/aws/internal/settings"
	"github.com/greylag/greylag/internal/burst"
)

const (
	testCluster = "c1"
	testToken   = "greylag-c1-7-1"
)

// start is the time at which tests begin.
var start = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

// cloud is a region of the endpoint, and a provider that uses it.
type cloud struct {
	*ec2wire.Server
	*Provider
	t        *testing.T
	now      time.Time
	url      string
	messages bytes.Buffer
}

const testConfig = `
[[region]]
name = "us-east-1"
types = ["g5.xlarge", "p5.48xlarge"]
launch_template = "lt-1"
endpoint = "ENDPOINT"

[[region.zone]]
name = "us-east-1a"
subnet = "subnet-a"

[[region.zone]]
name = "us-east-1b"
subnet = "subnet-b"
`

// newServer returns an endpoint with two types, in three zones with subnets.
func newServer(now func() time.Time) *ec2wire.Server {
	return &ec2wire.Server{
		Region: "us-east-1", Now: now, Notice: noticeTime,
		Types: []ec2wire.Type{
			{Name: "g5.xlarge", Zones: []string{"us-east-1a", "us-east-1b", "us-east-1c"}, VCPUs: 4, MemoryMiB: 16384, GPUs: 1, GPUName: "A10G", GPUMemoryMiB: 22888},
			{Name: "p5.48xlarge", Zones: []string{"us-east-1b"}, VCPUs: 192, MemoryMiB: 2097152, GPUs: 8, GPUName: "H100", GPUMemoryMiB: 81920},
		},
		Subnets:   map[string]string{"subnet-a": "us-east-1a", "subnet-b": "us-east-1b", "subnet-c": "us-east-1c"},
		Templates: map[string]ec2wire.Template{"lt-1": {Name: "greylag", Image: "ami-1"}, "lt-2": {Name: "interfaces", HasInterfaces: true}},
		Prices: []ec2wire.SpotPrice{
			{Type: "g5.xlarge", Zone: "us-east-1a", Price: "0.390000", Since: now().Add(-30 * time.Hour)},
			{Type: "g5.xlarge", Zone: "us-east-1a", Price: "0.500000", Since: now().Add(-50 * time.Hour)},
			{Type: "g5.xlarge", Zone: "us-east-1b", Price: "0.450000", Since: now().Add(-time.Hour)},
			{Type: "g5.xlarge", Zone: "us-east-1c", Price: "0.100000", Since: now().Add(-time.Hour)},
			{Type: "p5.48xlarge", Zone: "us-east-1b", Price: "21.500000", Since: now().Add(-time.Hour)},
		},
	}
}

func setCredentials(t *testing.T) {
	t.Helper()
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_CONFIG_FILE", "/dev/null")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
}

func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.URL
}

// newCloud starts an endpoint. change edits the configuration.
func newCloud(t *testing.T, change ...string) *cloud {
	t.Helper()
	setCredentials(t)
	c := &cloud{t: t, now: start}
	clock := func() time.Time { return c.now }
	c.Server = newServer(clock)
	c.url = serve(t, c.Server)
	c.Provider = New(c.configure(change...), testCluster, &c.messages)
	c.Provider.now = clock
	c.retryer = withoutDelay
	return c
}

// configure returns the settings of the test, with replaced texts.
func (c *cloud) configure(change ...string) *settings.Settings {
	c.t.Helper()
	path := writeConfig(c.t, c.url, change...)
	cfg, err := settings.Load(path)
	if err != nil {
		c.t.Fatal(err)
	}
	return cfg
}

func writeConfig(t *testing.T, url string, change ...string) string {
	t.Helper()
	text := strings.NewReplacer(append([]string{"ENDPOINT", url}, change...)...).Replace(testConfig)
	path := filepath.Join(t.TempDir(), "burst-aws.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func withoutDelay() aws.Retryer {
	return newRetryer(func(o *retry.StandardOptions) {
		o.Backoff = retry.BackoffDelayerFunc(func(int, error) (time.Duration, error) { return 0, nil })
	})
}

// spotLaunch is the question of a launch of n nodes.
func spotLaunch(n int) *burst.LaunchQuestion {
	return &burst.LaunchQuestion{
		ClientToken: testToken, Launch: 7, Try: 1, Nodes: n, Offer: "g5.xlarge/us-east-1a", Type: "g5.xlarge", Region: "us-east-1",
		Market: settings.Spot, MaxPrice: "0.48", LifetimeSeconds: 7200,
		UserData: burst.UserData{Cluster: testCluster, Launch: 7, Controllers: []string{"ctl1:7117"}, Token: "t0", LifetimeSeconds: 7200},
	}
}

// mustLaunch launches n nodes.
func (c *cloud) mustLaunch(n int) []burst.Instance {
	c.t.Helper()
	list, err := c.launch(c.t.Context(), spotLaunch(n))
	if err != nil || len(list) != n {
		c.t.Fatalf("launch: %v, %v", list, err)
	}
	return list
}

func (c *cloud) mustList() []burst.Instance {
	c.t.Helper()
	list, err := c.list(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	return list
}

// wantFailure requires a failure with a kind and an exit status.
func wantFailure(t *testing.T, err error, kind string, status int) {
	t.Helper()
	if err == nil {
		t.Fatalf("no failure, want %s", kind)
	}
	if failed := classify(err); failed.Kind != kind || failed.exitStatus() != status {
		t.Errorf("failure %s with exit status %d, want %s with %d: %v", failed.Kind, failed.exitStatus(), kind, status, err)
	}
}

// TestRun: the program reads a question, writes an answer, and ends with the status of the contract.
func TestRun(t *testing.T) {
	c := newCloud(t)
	path := writeConfig(t, c.url)
	for _, test := range []struct {
		name, call, question string
		status               int
		kind                 string
	}{
		{"list", "list", `{"version":1,"cluster":"c1","deadline":"2126-01-01T00:00:00Z","later_field":1}`, 0, ""},
		{"offers", "offers", `{"version":1,"cluster":"c1"}`, 0, ""},
		{"validate", "validate", `{"version":1,"cluster":"c1"}`, 0, ""},
		{"no JSON", "list", `list`, 1, burst.FailureInvalid},
		{"version", "list", `{"version":2,"cluster":"c1"}`, 1, burst.FailureInvalid},
		{"no cluster", "list", `{"version":1}`, 1, burst.FailureInvalid},
		{"unknown call", "start", `{"version":1,"cluster":"c1"}`, 1, burst.FailureInvalid},
		{"no launch", "launch", `{"version":1,"cluster":"c1"}`, 1, burst.FailureInvalid},
		{"no instance", "console", `{"version":1,"cluster":"c1"}`, 1, burst.FailureInvalid},
		{"unknown instance", "console", `{"version":1,"cluster":"c1","instances":["i-1"]}`, 1, burst.FailureNotFound},
		{"deadline", "list", `{"version":1,"cluster":"c1","deadline":"2020-01-01T00:00:00Z"}`, 75, burst.FailureTryLater},
	} {
		t.Run(test.name, func(t *testing.T) {
			var out, messages bytes.Buffer
			status := Run(t.Context(), path, test.call, strings.NewReader(test.question), &out, &messages)
			var answer burst.Answer
			if err := json.Unmarshal(out.Bytes(), &answer); err != nil {
				t.Fatalf("%v in %s", err, out.String())
			}
			kind := ""
			if answer.Error != nil {
				kind = answer.Error.Kind
			}
			if status != test.status || kind != test.kind {
				t.Errorf("exit status %d and %q, want %d and %q: %s", status, kind, test.status, test.kind, out.String())
			}
		})
	}
}

// TestBadConfiguration: a faulty file is a problem for validate, and a permanent failure for other calls.
func TestBadConfiguration(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none.toml")
	question := `{"version":1,"cluster":"c1"}`
	var out bytes.Buffer
	if status := Run(t.Context(), path, "list", strings.NewReader(question), &out, io.Discard); status != burst.ExitPermanent {
		t.Errorf("list ends with %d: %s", status, out.String())
	}
	out.Reset()
	if status := Run(t.Context(), path, "validate", strings.NewReader(question), &out, io.Discard); status != 0 || !strings.Contains(out.String(), "none.toml") {
		t.Errorf("validate ends with %d: %s", status, out.String())
	}
}

// TestCredentials: without credentials, or with an unknown profile, a call is denied.
func TestCredentials(t *testing.T) {
	c := newCloud(t)
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	_, err := c.list(context.Background())
	wantFailure(t, err, burst.FailureDenied, burst.ExitPermanent)
	c.cfg.CredentialsFile = filepath.Join(t.TempDir(), "credentials")
	text := "[burst]\naws_access_key_id = AKIDEXAMPLE\naws_secret_access_key = secret\n"
	if err := os.WriteFile(c.cfg.CredentialsFile, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c.cfg.Profile = "burst"
	if _, err := c.list(context.Background()); err != nil {
		t.Error(err)
	}
	c.clients, c.cfg.Profile = map[string]*ec2.Client{}, "unknown"
	_, err = c.list(context.Background())
	wantFailure(t, err, burst.FailureDenied, burst.ExitPermanent)
}
