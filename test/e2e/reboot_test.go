package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/greylag/greylag/test/cluster"
)

// standIn writes a program that ends its parent, a gnoded, and begins another boot of its node. A second program
// records validations.
func standIn(t *testing.T, dir string) (config string) {
	t.Helper()
	for name, text := range map[string]string{
		"reboot":   "cat /proc/sys/kernel/random/uuid > $GREYLAG_BOOT_ID && kill -KILL $PPID",
		"validate": "echo >> " + dir + "/validated.$GREYLAG_NODE",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return fmt.Sprintf("reboot_program = %q\nhealth.validate_program = %q\n", filepath.Join(dir, "reboot"), filepath.Join(dir, "validate"))
}

// TestRebootsOfNodes: an idle node reboots at once, validates and resumes; a busy one reboots when its job has
// ended. One that does not return in time is DOWN, and stays drained until an operator resumes it.
func TestRebootsOfNodes(t *testing.T) {
	t.Parallel()
	ctx, dir := limited(t, 4*hang), t.TempDir()
	s := newSite(t, cluster.Options{
		Nodes: 2, GPUs: 1, CPUs: 4, Memory: "2GiB", Tmpfs: true, Boots: true,
		NodeConfig: standIn(t, dir), Policy: quickKill() + "reboot_timeout = \"40s\"\n",
	})
	validations := func(node string) int {
		text, err := os.ReadFile(filepath.Join(dir, "validated."+node))
		s.must(err)
		return len(text)
	}
	open := s.gate("job ends")
	id := s.submit(ctx, s.job("long", open.then("exit 0")))
	busy, idle := s.Node(0), s.Node(1)
	if job := s.await(ctx, id, "RUNNING"); job.Nodes[0].Node != busy.Name {
		busy, idle = idle, busy
	}
	if out := s.ok(tester, "gctl", "reboot", busy.Name, idle.Name, "--reason", "kernel"); !strings.Contains(out, "reboot requested: ") {
		t.Errorf("gctl reboot: %q", out)
	}
	s.must(idle.WaitEnd(hang))
	s.must(idle.Start())
	s.must(s.AwaitNode(ctx, idle.Name, "IDLE"))
	s.until("validation", func() (bool, error) { return validations(idle.Name) == 2, nil })
	s.must(s.AwaitNode(ctx, busy.Name, "DRAINING"))
	if text := s.ok(tester, "gctl", "nodes"); !strings.Contains(text, "draining+reboot_") {
		t.Errorf("gctl nodes: %q", text)
	}
	s.stillRuns(ctx, id)
	open.open()
	s.await(ctx, id, "COMPLETED")
	s.must(busy.WaitEnd(hang))
	late := func() string { return s.ok(tester, "gctl", "show", "node", busy.Name) }
	s.until("a late reboot", func() (bool, error) {
		text := late()
		return strings.Contains(text, "DOWN+DRAIN") && strings.Contains(text, "reboot timed out after 0:40 (reboot_timeout): check the console of "+busy.Name+", then gctl resume "+busy.Name), fmt.Errorf("%s", text)
	})
	s.must(busy.Start())
	s.must(s.AwaitNode(ctx, busy.Name, "DRAINED"))
	s.until("validation", func() (bool, error) { return validations(busy.Name) == 2, nil })
	s.ok(tester, "gctl", "resume", busy.Name)
	s.must(s.AwaitNode(ctx, busy.Name, "IDLE"))
	s.idle(ctx)
	s.audit(ctx)
}
