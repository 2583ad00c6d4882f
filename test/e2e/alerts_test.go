package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/test/cluster"
)

// TestAlerts checks that alerts fire from real faults. Prometheus scrapes controllers and the text
// files of nodes, and evaluates the packaged rules with shorter durations.
func TestAlerts(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(*testing.T){"controllers": alertsOfControllers, "nodes": alertsOfNodes, "disk": alertsOfDisk} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t)
		})
	}
}

// alertsOfControllers kills two of three controllers until six promised starts are over.
func alertsOfControllers(t *testing.T) {
	prometheus := needsPrometheus(t)
	ctx := limited(t, 4*hang)
	options := three()
	options.Policy = strings.Replace(quickKill(), `"10s"`, `"1s"`, 1) // jobs are promised what a killed job frees
	s := newSite(t, options)
	p := s.monitor(prometheus)
	p.quiet(ctx, "GreylagNoLeader", "GreylagPromisesBroken")
	s.gsubmit(tester, "--cpus-per-task=16", "--time=0:05", s.script("sleep 3"))
	var promised []uint64
	for range 6 {
		promised = append(promised, s.gsubmit(tester, "--time=1", s.script("true")))
	}
	start := time.Time{}
	for _, id := range promised {
		s.until("a promise", func() (bool, error) {
			job, err := s.get(ctx, id)
			start = job.GetPlanned().AsTime()
			return err == nil && job.Promised, err
		})
	}
	down := s.Controllers()[:2]
	for _, ctl := range down {
		s.must(ctl.Kill())
	}
	p.fires(ctx, "GreylagNoLeader")
	s.wait(ctx, time.Until(start.Add(11*time.Second)))
	for _, ctl := range down {
		s.must(ctl.Start())
	}
	p.fires(ctx, "GreylagPromisesBroken")
}

// alertsOfNodes kills three of four nodes, reports a GPU error on the other, and submits more jobs than
// scheduling passes can follow.
func alertsOfNodes(t *testing.T) {
	prometheus := needsPrometheus(t)
	ctx := limited(t, 4*hang)
	s := newSite(t, cluster.Options{Nodes: 4, GPUs: 4, CPUs: 16, Memory: "4GiB", Tmpfs: true})
	fault := s.fakeGPU(s.Node(0))
	p := s.monitor(prometheus)
	p.quiet(ctx, "GreylagNodesDown", "GreylagGpuXidFatal", "GreylagSchedulerStalled")
	s.must(os.WriteFile(fault, nil, 0o644))
	for _, node := range s.Nodes()[1:] {
		s.must(node.Kill())
	}
	loaded, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	script := s.script("sleep 1000")
	go func() { ended <- s.overload(loaded, script) }()
	p.fires(ctx, "GreylagSchedulerStalled")
	stop()
	s.must(<-ended)
	p.fires(ctx, "GreylagNodesDown", "GreylagGpuXidFatal")
}

// overload submits jobs with unlike requests, until ctx ends.
func (s *site) overload(ctx context.Context, script string) error {
	for i := 0; ctx.Err() == nil; i++ {
		args := small("--array=0-999", fmt.Sprintf("--cpus-per-task=%d", 1+i%16), fmt.Sprintf("--time=%d", 5+i), script)
		result, err := cluster.Finish(s.Command(ctx, "gsubmit", args...))
		if ctx.Err() == nil && (err != nil || result.Exit != 0) {
			return fmt.Errorf("gsubmit: exit status %d, %w: %s", result.Exit, err, result.Stderr)
		}
	}
	return nil
}

// alertsOfDisk fills the disk of the only controller.
func alertsOfDisk(t *testing.T) {
	needsRoot(t, "a file system of its own")
	prometheus := needsPrometheus(t)
	ctx := limited(t, 4*hang)
	s := newSite(t, cluster.Options{DiskMiB: 48})
	p := s.monitor(prometheus)
	p.quiet(ctx, "GreylagDiskLow", "GreylagAllDisksLow")
	s.must(s.Controller(0).Fill())
	p.fires(ctx, "GreylagDiskLow", "GreylagAllDisksLow")
}

func needsPrometheus(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("needs prometheus: ", err)
	}
	return path
}

// simulated matches the simulated GPUs of gnoded.toml.
var simulated = regexp.MustCompile(`(?ms)^simulated_gpu_offset.*^memory = "80GiB"\n`)

// fakeGPU gives a node another gnvml, with one GPU, and returns the file that makes it report XID 79.
func (s *site) fakeGPU(node *cluster.Node) (fault string) {
	s.t.Helper()
	dir, fault := s.t.TempDir(), filepath.Join(s.Work, "xid")
	program, err := os.ReadFile(filepath.Join(s.Programs(), "gnoded"))
	s.must(err)
	s.must(os.WriteFile(filepath.Join(dir, "gnoded"), program, 0o755))
	s.must(os.WriteFile(filepath.Join(dir, "gnvml"), fmt.Appendf(nil, `#!/bin/sh
while sleep 0.5; do
  if [ -e '%[1]s' ]; then rm '%[1]s'; echo '{"event":{"uuid":"GPU-1","type":8,"data":79}}'; else echo '{"beat":true}'; fi
done &
while read -r line; do
  id=${line#*:}
  echo "{\"id\":${id%%%%,*},\"host\":{\"driver\":\"570\",\"devices\":[{\"index\":0,\"uuid\":\"GPU-1\",\"name\":\"NVIDIA H100\",\"memory\":85899345920}]}}"
done
kill $!
`, fault), 0o755))
	file := filepath.Join(filepath.Dir(node.Textfile()), "gnoded.toml")
	config, err := os.ReadFile(file)
	s.must(err)
	s.must(os.WriteFile(file, simulated.ReplaceAll(config, nil), 0o644))
	s.must(node.Stop())
	node.UsePrograms(dir)
	s.must(node.Start())
	return fault
}

// monitored is a Prometheus that monitors a cluster.
type monitored struct {
	*site
	addr string
}

// durations are the durations of rules, and what replaces them.
var durations = []struct {
	text *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`(?m)^( +for:) .*`), "$1 1s"},
	{regexp.MustCompile(`\[\d+[mhd]\]`), "[60s]"},
	{regexp.MustCompile(`offset \d+[mhd]`), "offset 60s"},
	{regexp.MustCompile(`last_pass_timestamp_seconds\) > 300`), "last_pass_timestamp_seconds) > 3"},
}

// monitor starts Prometheus, and returns when it has scraped every controller and node.
func (s *site) monitor(program string) monitored {
	s.t.Helper()
	dir := s.t.TempDir()
	rules, err := os.ReadFile("../../packaging/monitoring/prometheus/greylag.rules.yaml")
	s.must(err)
	for _, d := range durations {
		if !d.text.Match(rules) {
			s.t.Fatal("no rule has ", d.text)
		}
		rules = d.text.ReplaceAll(rules, []byte(d.with))
	}
	s.must(os.WriteFile(filepath.Join(dir, "rules.yaml"), rules, 0o644))
	s.must(os.WriteFile(filepath.Join(dir, "prometheus.yaml"), []byte(s.scrapes()), 0o644))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	s.must(err)
	p := monitored{s, listener.Addr().String()}
	s.must(listener.Close())
	cmd := exec.Command(program, "--config.file="+filepath.Join(dir, "prometheus.yaml"), "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+p.addr, "--log.level=warn")
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	s.must(cmd.Start())
	s.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
		if s.t.Failed() {
			s.t.Log(said.String())
		}
	})
	s.until("every target is scraped", func() (bool, error) {
		up, err := p.query(s.t.Context(), `sum(up) + (count(greylag_node_info) or vector(0))`)
		return err == nil && slices.Equal(up, []string{fmt.Sprint(len(s.Controllers()) + 2*len(s.Nodes()))}), err
	})
	return p
}

// scrapes returns the configuration of Prometheus. A web server stands in for node_exporter.
func (s *site) scrapes() string {
	files := http.NewServeMux()
	for _, node := range s.Nodes() {
		files.HandleFunc("/"+node.Name, func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, node.Textfile()) })
	}
	exporter := httptest.NewServer(files)
	s.t.Cleanup(exporter.Close)
	text := "global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\nrule_files: [rules.yaml]\nscrape_configs:\n"
	text += fmt.Sprintf("- job_name: greylag\n  scheme: https\n  tls_config: {ca_file: %s}\n  static_configs:\n", s.CAFile())
	for _, ctl := range s.Controllers() {
		text += fmt.Sprintf("  - {targets: [%q], labels: {cluster: test}}\n", ctl.Addr)
	}
	text += "- job_name: nodes\n  static_configs:\n"
	for _, node := range s.Nodes() {
		text += fmt.Sprintf("  - {targets: [%q], labels: {cluster: test, instance: %s, __metrics_path__: /%s}}\n", exporter.Listener.Addr(), node.Name, node.Name)
	}
	return text
}

// query returns the label alertname of each sample, or its value without one.
func (p monitored) query(ctx context.Context, expr string) (found []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.addr+"/api/v1/query?query="+url.QueryEscape(expr), nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	var answer struct {
		Error string
		Data  struct {
			Result []struct {
				Metric struct{ Alertname string }
				Value  [2]any
			}
		}
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || answer.Error != "" {
		return nil, fmt.Errorf("%s: %s %w", expr, answer.Error, err)
	}
	for _, r := range answer.Data.Result {
		if r.Metric.Alertname != "" {
			found = append(found, r.Metric.Alertname)
		} else {
			found = append(found, fmt.Sprint(r.Value[1]))
		}
	}
	return found, nil
}

const firing = `count by (alertname) (ALERTS{alertstate="firing"})`

// quiet checks that alerts do not fire without a fault.
func (p monitored) quiet(ctx context.Context, alerts ...string) {
	p.t.Helper()
	p.wait(ctx, 2*time.Second)
	found, err := p.query(ctx, firing)
	p.must(err)
	for _, alert := range alerts {
		if slices.Contains(found, alert) {
			p.t.Errorf("%s fires before the fault", alert)
		}
	}
}

// fires waits until each alert has fired.
func (p monitored) fires(ctx context.Context, alerts ...string) {
	p.t.Helper()
	begun := time.Now()
	fired := map[string]bool{}
	p.must(cluster.Until(ctx, fmt.Sprint(alerts, " fire"), func() (bool, error) {
		found, err := p.query(ctx, firing)
		for _, alert := range found {
			if slices.Contains(alerts, alert) && !fired[alert] {
				fired[alert] = true
				p.t.Logf("%s fires after %s", alert, time.Since(begun).Round(100*time.Millisecond))
			}
		}
		if err == nil {
			err = fmt.Errorf("firing: %v", found)
		}
		return len(fired) == len(alerts), err
	}))
}
