package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// burstPolicy leases nodes at once for jobs that would wait for minutes.
const burstPolicy = longJobPolicy + `burst_value = "20"

[burst]
enabled = true
monthly_limit = "100"
min_pending = "0s"
boot_timeout = "1m"
idle_time = "3s"

[[partition]]
name = "main"
nodes = ["ALL"]
default = true
default_time = "1h"

[[partition]]
name = "cloud"
nodes = ["CLOUD"]
default_time = "1h"
`

// prepareCloud makes the state directory of a cloud whose instances are processes of this machine, with 4 GPUs each. It
// returns "" where instances cannot have containers. The directory is not below /tmp: jobs mount what is in it.
func prepareCloud() (dir string, err error) {
	if os.Geteuid() != 0 {
		return "", nil
	}
	if err := os.MkdirAll("/srv", 0o755); err != nil {
		return "", err
	}
	if dir, err = os.MkdirTemp("/srv", "greylag-demo-"); err != nil {
		return "", err
	}
	if err := errors.Join(os.Chmod(dir, 0o755), os.Mkdir(filepath.Join(dir, "shared"), 0o755)); err != nil {
		return dir, err
	}
	settings := map[string]any{"currency": "USD", "max_instances": 2, "first_gpu": 8, "offers": []any{map[string]any{
		"name": "local-4", "market": "spot", "type": "local", "region": "local", "price": "4.00", "cpus": 8, "memory_bytes": 4 << 30,
		"gpus": 4, "gpu_type": "h100", "gpu_memory_bytes": 80 << 30, "boot_seconds": 2,
	}}}
	text, err := json.Marshal(settings)
	if err != nil {
		return dir, err
	}
	return dir, os.WriteFile(filepath.Join(dir, "settings.json"), text, 0o644)
}

// burst has a queue that exceeds the site: a leased node joins and runs a job, the cloud takes it back, the job resumes on
// another one, and the leases end.
func (s *stage) burst() {
	if !s.c.Containerized() || s.cloud == "" {
		return
	}
	s.title("The queue exceeds the site: a cloud node runs the job, is taken back, and the job resumes on another one")
	s.apply(burstPolicy)
	full := s.submit("--nodes=2", "--gpus-per-node=4", "--time=60", "forever.sh")
	s.await(full, "RUNNING")
	shared := filepath.Join(s.cloud, "shared")
	if err := copyProgram("gctl", shared); err != nil {
		s.fail("copy gctl: %w", err)
	}
	id := s.submit("--image", "oci-archive:"+s.c.Work+"/small.tar", "--mount", shared+":"+shared, "--checkpoint", shared+"/%j", "--env", "SHARED="+shared, "cloud.sh")
	out := "cloud-" + id + ".out"
	s.prints(out, "attempt 1 waits at step 3")
	s.run("gctl", "burst", "list")
	instance := s.instance()
	s.run("greylag-burst-local", "--dir", s.cloud, "reclaim", "--in", "30s", instance)
	s.ends(id, "COMPLETED", 0)
	if text := s.output(out); !strings.Contains(text, "starts at step 3") || lastLine(text) != "done at step 6" {
		s.fail("the second attempt should resume at step 3")
	}
	s.run("gcancel", full)
	s.ends(full, "CANCELLED", -1)
	s.released()
	s.run("gctl", "burst", "list", "--ended")
	s.run("gctl", "burst", "budget")
}

// released waits until all leases have ended.
func (s *stage) released() {
	for s.err == nil && len(s.leases()) > 0 {
		select {
		case <-s.ctx.Done():
			s.fail("timeout: leases have not ended")
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// lease is a lease as gctl burst list --json prints it.
type lease struct {
	Instance string `json:"instance"`
}

// leases returns the leases that have not ended.
func (s *stage) leases() []lease {
	if s.err != nil {
		return nil
	}
	var list struct {
		Leases []lease `json:"leases"`
	}
	result, err := s.c.Run(s.ctx, "gctl", "burst", "list", "--json")
	if err == nil {
		err = json.Unmarshal([]byte(result.Stdout), &list)
	}
	if err != nil {
		s.fail("list the leases: %w", err)
	}
	return list.Leases
}

// instance returns the only instance.
func (s *stage) instance() string {
	list := s.leases()
	if len(list) != 1 {
		s.fail("there should be one lease: %v", list)
		return ""
	}
	return list[0].Instance
}

// apply puts a policy with the present user as an administrator in force.
func (s *stage) apply(policy string) {
	if s.err != nil {
		return
	}
	if err := s.c.Apply(s.ctx, fmt.Sprintf(policy, admins())); err != nil {
		s.fail("apply the policy: %w", err)
	}
}
