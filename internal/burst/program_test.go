package burst

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

const testCluster = "c1"

// scripted returns a provider whose program is a shell script with the body, and its log.
func scripted(t *testing.T, body string) (*Program, *bytes.Buffer) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "provider")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+body), 0o755); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	return New(Config{
		Program: path, Timeout: 10 * time.Second, ClusterID: testCluster, Log: slog.New(slog.NewTextHandler(&log, nil)),
	}), &log
}

// answering returns a provider whose program prints a text.
func answering(t *testing.T, text string) *Program {
	t.Helper()
	p, _ := scripted(t, "cat >/dev/null\ncat <<'END'\n"+text+"\nEND\n")
	return p
}

func minutesAgo(n int) string {
	return time.Now().Add(-time.Duration(n) * time.Minute).UTC().Format(time.RFC3339)
}

// launchTest is a launch of one instance.
func launchTest(nodes int) *LaunchRequest {
	return &LaunchRequest{
		Launch: 7, Try: 2, ClientToken: "greylag-c1-7-2", Nodes: nodes, MaxPrice: 12_500_000, Lifetime: time.Hour,
		Offer:       cluster.Offer{Name: "big/a", Market: cluster.Spot, Region: "r1", Type: "big"},
		Controllers: []string{"ctl1:7117"}, JoinToken: "secret-token",
	}
}

// instanceText returns an instance in JSON with fields replaced; an empty value removes the field.
func instanceText(id string, replaced ...string) string {
	fields := []string{
		"id", `"` + id + `"`, "cluster", `"` + testCluster + `"`, "launch", "7", "try", "2", "state", `"running"`,
		"launched_at", `"` + minutesAgo(1) + `"`, "price", `"9.75"`,
	}
	return object(fields, replaced)
}

func offerText(name string, replaced ...string) string {
	fields := []string{
		"name", `"` + name + `"`, "market", `"spot"`, "type", `"big"`, "region", `"r1"`, "price", `"12.345678"`, "priced_at", `"` + minutesAgo(1) + `"`,
		"cpus", "96", "memory_bytes", "1099511627776", "gpus", "8", "gpu_type", `"h100"`, "gpu_memory_bytes", "85899345920", "boot_seconds", "90",
	}
	return object(fields, replaced)
}

func object(fields, replaced []string) string {
	all := append(fields[:len(fields):len(fields)], replaced...)
	last := map[string]string{}
	var names, pairs []string
	for i := 0; i < len(all); i += 2 {
		if _, known := last[all[i]]; !known {
			names = append(names, all[i])
		}
		last[all[i]] = all[i+1]
	}
	for _, name := range names {
		if last[name] != "" {
			pairs = append(pairs, fmt.Sprintf("%q: %s", name, last[name]))
		}
	}
	return "{" + strings.Join(pairs, ", ") + "}"
}

func TestProgramIsCalled(t *testing.T) {
	dir := t.TempDir()
	p, log := scripted(t, `echo "$@" > `+dir+`/args; cat > `+dir+`/input; env | sort > `+dir+`/env; pwd >> `+dir+`/env
echo "using secret-token" >&2
echo '{"instances": [`+instanceText("i-1")+`]}'
`)
	p.cfg.Args, p.cfg.Environment = []string{"--region", "r1"}, []string{"HOME=/srv/x"}
	t.Setenv("SECRET", "of gctld")
	list, err := p.Launch(t.Context(), launchTest(1))
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	x := list[0]
	if x.ID != "i-1" || x.Launch != 7 || x.Try != 2 || x.Terminated || x.Price != 9_750_000 || x.Cost != -1 || x.Launched == 0 || x.Reclaim != 0 {
		t.Errorf("instance %+v", x)
	}
	for name, want := range map[string]string{
		"args":  "--region r1 launch\n",
		"env":   "HOME=/srv/x\nLANG=C.UTF-8\nPATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\nPWD=/\n/\n",
		"input": `{"version":1,"cluster":"c1","deadline":"TIME","launch":{"client_token":"greylag-c1-7-2","launch":7,"try":2,"nodes":1,"offer":"big/a","type":"big","region":"r1","market":"spot","max_price":"12.50","lifetime_seconds":3600,"user_data":{"cluster":"c1","launch":7,"controllers":["ctl1:7117"],"token":"secret-token","lifetime_seconds":3600}}}` + "\n",
	} {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		text := string(got)
		if _, rest, ok := strings.Cut(text, `"deadline":"`); ok {
			deadline, _, _ := strings.Cut(rest, `"`)
			text = strings.Replace(text, deadline, "TIME", 1)
		}
		if text != want {
			t.Errorf("%s:\n%s\nwant\n%s", name, text, want)
		}
	}
	if got := log.String(); strings.Contains(got, "secret") || !strings.Contains(got, `launch=7 try=2 call=launch line="using [join token]"`) {
		t.Error(got)
	}
}

func TestOffersAreConverted(t *testing.T) {
	p := answering(t, `{"currency": "EUR", "offers": [`+offerText("b", "market", `"on-demand"`, "price", `"40"`)+","+offerText("a", "interruption_ppm", "2000")+`]}`)
	prices, err := p.Offers(t.Context())
	if err != nil || prices.Currency != "EUR" || len(prices.Offers) != 2 {
		t.Fatal(prices, err)
	}
	a, b := prices.Offers[0], prices.Offers[1]
	a.PricedAt = 0
	want := cluster.Offer{
		Name: "a", Market: cluster.Spot, Region: "r1", Type: "big", Price: 12_345_678, CPUs: 96, Memory: cluster.TiB,
		GPUs: 8, GPUType: "h100", GPUMemory: 80 * cluster.GiB, Boot: 90 * time.Second, Risk: 2000,
	}
	if a != want || b.Name != "b" || b.Market != cluster.OnDemand || b.Price != 40_000_000 {
		t.Errorf("offers %+v\n%+v\nwant %+v", a, b, want)
	}
}

// TestOffersThatAreRefused: an offer with a wrong field is listed with what is wrong, and no price. A conformance test
// refuses all prices for it.
func TestOffersThatAreRefused(t *testing.T) {
	malformed := []string{"cannot unmarshal number", "cannot unmarshal", "cannot parse", "not a JSON string", "unknown field", "listed twice"} // no JSON of the contract
	for _, row := range []struct{ field, value, want string }{
		{"price", `"0"`, "out of range"}, {"price", `"0.000000"`, "out of range"}, {"price", `"-1"`, "not a decimal number"},
		{"price", `"1000000000000"`, "out of range"}, {"price", `"1000000.000001"`, "out of range"}, {"price", `"99999999999999999999"`, "is above"},
		{"price", `"1e3"`, "not a decimal number"}, {"price", `"1,5"`, "not a decimal number"}, {"price", `"12.3456789"`, "at most six decimals"},
		{"price", `"NaN"`, "not a decimal number"}, {"price", `""`, "not a decimal number"}, {"price", "12.5", "cannot unmarshal number"}, {"price", "", "not a decimal number"},
		{"priced_at", `"2001-01-01T00:00:00Z"`, "more than a day from now"}, {"priced_at", `"2101-01-01T00:00:00Z"`, "more than a day from now"},
		{"priced_at", "", "more than a day from now"}, {"priced_at", `"yesterday"`, "cannot parse"}, {"priced_at", "1700000000", "not a JSON string"},
		{"name", `""`, "name is missing"}, {"name", `"a b"`, "not a word"}, {"name", `"a\u001b[2J"`, "not a word"}, {"region", "", "region is missing"},
		{"type", `"` + strings.Repeat("x", 129) + `"`, "at most 128"}, {"market", `"any"`, "not spot or on-demand"}, {"market", "", "not spot or on-demand"},
		{"cpus", "0", "cpus 0 is out of range"}, {"memory_bytes", "-1", "out of range"}, {"gpus", "-8", "out of range"}, {"gpu_type", "", "gpu_type is missing"},
		{"boot_seconds", "86401", "out of range"}, {"interruption_ppm", "1000001", "out of range"}, {"cpus", "99999999999", "cannot unmarshal"},
		{"gpu_kind", `"h100"`, "unknown field"}, {"name", `"b"`, "listed twice"},
	} {
		p := answering(t, `{"currency": "USD", "offers": [`+offerText("b")+","+offerText("a", row.field, row.value)+`]}`)
		p.cfg.Strict = true
		prices, err := p.Offers(t.Context())
		if !errors.Is(err, ErrAnswer) || !errors.Is(err, ErrUnknownOutcome) || !strings.Contains(err.Error(), row.want) || len(prices.Offers) > 0 {
			t.Errorf("%s %s, strictly: %v, want %s", row.field, row.value, err, row.want)
		}
		p.cfg.Strict = false
		if prices, err = p.Offers(t.Context()); err != nil && !slices.Contains(malformed, row.want) {
			t.Errorf("%s %s: %v", row.field, row.value, err)
		}
		for _, o := range prices.Offers {
			if bad := o.Name == "a"; bad != (o.Fault != "") || bad && (!strings.Contains(o.Fault, row.want) || o.Price != 0) || !bad && o.Price == 0 {
				t.Errorf("%s %s: %+v, want %s", row.field, row.value, o, row.want)
			}
		}
	}
	for _, currency := range []string{"", "usd", "DOLLAR", `U\u0001D`} {
		if _, err := answering(t, `{"currency": "`+currency+`"}`).Offers(t.Context()); !errors.Is(err, ErrAnswer) {
			t.Errorf("currency %q: %v", currency, err)
		}
	}
}

func TestLaunchAnswersThatAreRefused(t *testing.T) {
	one := instanceText("i-1")
	for name, row := range map[string]struct {
		instances string
		want      error
		seen      int
	}{
		"no node":                  {"", ErrCount, 0},
		"fewer nodes":              {one, ErrCount, 1},
		"more nodes":               {one + "," + instanceText("i-2") + "," + instanceText("i-3"), ErrCount, 3},
		"a node of another launch": {one + "," + instanceText("i-2", "launch", "8"), ErrForeign, 1},
		"a node of another try":    {one + "," + instanceText("i-2", "try", "1"), ErrForeign, 1},
		"another cluster":          {one + "," + instanceText("i-2", "cluster", `"c2"`), ErrForeign, 1},
		"one node listed twice":    {one + "," + one, ErrAnswer, 0},
		"launched long ago":        {one + "," + instanceText("i-2", "launched_at", `"2025-01-01T00:00:00Z"`), ErrAnswer, 2},
		"launched in the future":   {one + "," + instanceText("i-2", "launched_at", `"2125-01-01T00:00:00Z"`), ErrAnswer, 2},
		"never launched":           {one + "," + instanceText("i-2", "launched_at", ""), ErrAnswer, 2},
		"no ID":                    {one + "," + instanceText(""), ErrAnswer, 0},
		"an unknown state":         {one + "," + instanceText("i-2", "state", `"shelved"`), ErrAnswer, 0},
		"launch 0":                 {one + "," + instanceText("i-2", "launch", "0"), ErrAnswer, 0},
		"a negative launch":        {one + "," + instanceText("i-2", "launch", "-7"), ErrAnswer, 0},
	} {
		list, err := answering(t, `{"instances": [`+row.instances+`]}`).Launch(t.Context(), launchTest(2))
		if !errors.Is(err, row.want) || !errors.Is(err, ErrUnknownOutcome) || errors.Is(err, ErrRefused) || len(list) != row.seen {
			t.Errorf("%s: %v, %v, want %v with %d instances", name, list, err, row.want, row.seen)
		}
	}
}

// TestOddFields: a field that an instance may lack is ignored if it is odd, and logged once. A conformance test refuses the
// answer.
func TestOddFields(t *testing.T) {
	for _, row := range []struct{ field, value, state string }{
		{"price", `"0"`, "running"}, {"price", `"-3"`, "running"}, {"price", `"1000000000000"`, "running"}, {"type", `"a b"`, "running"},
		{"address", `"` + strings.Repeat("x", 129) + `"`, "running"}, {"launched_at", `"1970-01-01T00:00:00Z"`, "running"}, {"launched_at", "", "pending"},
		{"reclaim_at", `"2020-01-01T00:00:00Z"`, "running"}, {"reclaim_at", `"9999-01-01T00:00:00Z"`, "running"},
		{"cost", `"-1"`, "terminated"}, {"cost", `"1e12"`, "terminated"}, {"cost", `"99999999999999999999"`, "terminated"},
	} {
		text := instanceText("i-1") + "," + instanceText("i-2", "state", `"`+row.state+`"`, row.field, row.value)
		p, log := scripted(t, "cat >/dev/null\ncat <<'END'\n{\"instances\": ["+text+"]}\nEND\n")
		for range 2 {
			list, err := p.List(t.Context())
			if err != nil || len(list) != 2 {
				t.Fatalf("%s %s: %v, %v", row.field, row.value, list, err)
			}
			x := list[1]
			cleared := map[string]bool{"price": x.Price == 0, "type": x.Type == "", "address": x.Address == "", "launched_at": x.Launched == 0, "reclaim_at": x.Reclaim == 0, "cost": x.Cost == -1}
			if x.ID != "i-2" || x.Launch != 7 || x.Try != 2 || x.Terminated != (row.state == "terminated") || !cleared[row.field] {
				t.Errorf("%s %s: %+v", row.field, row.value, x)
			}
		}
		if got := log.String(); strings.Count(got, "is ignored") != 1 || !strings.Contains(got, row.field) {
			t.Errorf("%s %s: log %s", row.field, row.value, got)
		}
		p.cfg.Strict = true
		if _, err := p.List(t.Context()); !errors.Is(err, ErrAnswer) || !strings.Contains(err.Error(), row.field) {
			t.Errorf("%s %s, strictly: %v", row.field, row.value, err)
		}
	}
}

func TestListIgnoresOtherClusters(t *testing.T) {
	p := answering(t, `{"instances": [`+strings.Join([]string{
		instanceText("i-3", "state", `"terminated"`, "cost", `"1.5"`, "interrupted", "true", "reclaim_at", `"2021-01-01T00:00:00Z"`),
		instanceText("i-2", "cluster", `"c2"`, "launch", "0", "state", `"?"`),
		instanceText("i-1", "price", "", "reclaim_at", `"`+minutesAgo(-2)+`"`, "launched_at", `"2024-05-01T00:00:00Z"`),
	}, ",")+`]}`)
	list, err := p.List(t.Context())
	if err != nil || len(list) != 2 || list[0].ID != "i-1" || list[1].ID != "i-3" {
		t.Fatal(list, err)
	}
	if list[0].Reclaim == 0 || list[0].Price != 0 || list[0].Cost != -1 || !list[1].Terminated || list[1].Cost != 1_500_000 || !list[1].Interrupted || list[1].Reclaim != 0 {
		t.Errorf("%+v", list)
	}
	if _, err := p.Terminate(t.Context(), []string{"i-1"}); !errors.Is(err, ErrForeign) {
		t.Errorf("terminate with another instance in the answer: %v", err)
	}
	if list, err := p.Terminate(t.Context(), []string{"i-3", "i-1"}); err != nil || len(list) != 2 {
		t.Errorf("terminate: %v, %v", list, err)
	}
}

func TestExitStatuses(t *testing.T) {
	failure := func(kind string) string { return `{"error": {"kind": "` + kind + `", "message": "a\nb"}}` }
	for _, row := range []struct {
		output      string
		status      int
		kind, class error
	}{
		{failure("capacity"), 1, ErrCapacity, ErrRefused}, {failure("quota"), 1, ErrQuota, ErrRefused}, {failure("denied"), 1, ErrDenied, ErrRefused},
		{failure("invalid"), 1, ErrInvalid, ErrRefused}, {failure("price"), 1, ErrPrice, ErrRefused}, {failure("not_found"), 1, ErrNotFound, ErrRefused},
		{failure("mismatched"), 1, ErrMismatch, ErrUnknownOutcome}, {failure("throttled"), 1, ErrThrottled, ErrUnknownOutcome},
		{failure("throttled"), 75, ErrThrottled, ErrUnknownOutcome}, {failure("capacity"), 75, ErrCapacity, ErrUnknownOutcome}, {"", 75, ErrTryLater, ErrUnknownOutcome},
		{"garbage", 75, ErrTryLater, ErrUnknownOutcome}, {failure("try_later"), 75, ErrTryLater, ErrUnknownOutcome},
		{failure("lunch"), 1, ErrProgram, ErrUnknownOutcome}, {"Traceback:", 1, ErrProgram, ErrUnknownOutcome}, {"", 1, ErrProgram, ErrUnknownOutcome},
		{"{}", 1, ErrProgram, ErrUnknownOutcome}, {failure("capacity") + "{}", 1, ErrProgram, ErrUnknownOutcome}, {failure("capacity"), 2, ErrProgram, ErrUnknownOutcome},
		{failure("capacity"), 0, ErrAnswer, ErrUnknownOutcome}, {"", 0, ErrAnswer, ErrUnknownOutcome}, {"garbage", 0, ErrAnswer, ErrUnknownOutcome},
		{"null {}", 0, ErrAnswer, ErrUnknownOutcome}, {`[]`, 0, ErrAnswer, ErrUnknownOutcome}, {`{"instances": {}}`, 0, ErrAnswer, ErrUnknownOutcome},
		{`{"instances": [`, 0, ErrAnswer, ErrUnknownOutcome}, {`{"instances": []} trailing`, 0, ErrAnswer, ErrUnknownOutcome},
	} {
		p, _ := scripted(t, fmt.Sprintf("cat <<'END'\n%s\nEND\nexit %d\n", row.output, row.status))
		_, err := p.Launch(t.Context(), launchTest(1))
		other := ErrRefused
		if errors.Is(row.class, ErrRefused) {
			other = ErrUnknownOutcome
		}
		if !errors.Is(err, row.kind) || !errors.Is(err, row.class) || errors.Is(err, other) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s with status %d: %v, want %v, %v", row.output, row.status, err, row.kind, row.class)
		}
	}
}

func TestConsoleAndProblems(t *testing.T) {
	p := answering(t, `{"console": "`+strings.Repeat("x", 5000)+`é\u001b[31mred\r\nend", "problems": ["no region\nset", "no key"]}`)
	text, err := p.Console(t.Context(), "i-1")
	if err != nil || len(text) > cluster.MaxConsole || !strings.HasSuffix(text, "é [31mred\nend") {
		t.Errorf("console of %d bytes, %v: %s", len(text), err, text[max(0, len(text)-20):])
	}
	problems, err := p.Validate(t.Context())
	if err != nil || strings.Join(problems, "|") != "no region set|no key" {
		t.Errorf("problems %q, %v", problems, err)
	}
}

func TestProgramRunsAsItsUser(t *testing.T) {
	p, _ := scripted(t, `echo "{\"console\": \"$(id -u) $(id -G)\"}"`)
	p.cfg.User = "unknown-user"
	if _, err := p.Console(t.Context(), "i"); !errors.Is(err, ErrProgram) || !strings.Contains(err.Error(), `"unknown-user" is not in /etc/passwd`) {
		t.Errorf("an unknown user: %v", err)
	}
	other, err := user.Lookup("daemon")
	if os.Geteuid() != 0 || err != nil {
		t.Skip("only root can start a program of another user")
	}
	for dir := filepath.Dir(p.cfg.Program); dir != os.TempDir() && len(dir) > 1; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	p.cfg.User = "daemon"
	if text, err := p.Console(t.Context(), "i"); err != nil || text != other.Uid+" "+other.Gid {
		t.Errorf("runs as %q, %v, want %s %s", text, err, other.Uid, other.Gid)
	}
}

func TestCallerEndsTheProgram(t *testing.T) {
	p, _ := scripted(t, "exec sleep 1000")
	ctx, cancel := context.WithCancel(t.Context())
	context.AfterFunc(ctx, func() {})
	time.AfterFunc(100*time.Millisecond, cancel)
	if _, err := p.List(ctx); !errors.Is(err, context.Canceled) || errors.Is(err, ErrUnknownOutcome) {
		t.Errorf("a caller that ends: %v", err)
	}
}
