package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/config"
	"github.com/greylag/greylag/internal/leased"
)

func TestLeaseOf(t *testing.T) {
	cfg := config.DefaultNode()
	cfg.Name, cfg.LeaseFile = "n1", filepath.Join(t.TempDir(), "lease.json")
	if l, err := leaseOf(cfg, "c1"); l != nil || err != nil {
		t.Errorf("a node of the site: %v, %v", l, err)
	}
	cfg.Name = "cloud-7"
	if _, err := leaseOf(cfg, "c1"); err == nil {
		t.Error("a leased node without a file was accepted")
	}
	file := leased.File{Cluster: "c1", Lease: 7, Launch: 7, Instance: "i-1", Expires: time.Now().Add(time.Hour).UTC().Round(0)}
	text, err := file.Text()
	if err == nil {
		err = os.WriteFile(cfg.LeaseFile, []byte(text), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	cfg.PowerOffProgram, cfg.ReclaimSource = "/sbin/off", "aws"
	l, err := leaseOf(cfg, "c1")
	if err != nil || !l.Expires.Equal(file.Expires) || l.IdleLimit != 15*time.Minute || l.PowerOff[0] != "/sbin/off" || l.Notices == nil || l.Block == nil {
		t.Errorf("a leased node: %+v, %v", l, err)
	}
	cfg.BlockMetadata, cfg.ReclaimSource = false, ""
	if l, err := leaseOf(cfg, "c1"); err != nil || l.Block != nil || l.Notices != nil {
		t.Errorf("without notices and rules: %+v, %v", l, err)
	}
	if _, err := leaseOf(cfg, "c2"); !errors.Is(err, leased.ErrOtherNode) {
		t.Errorf("another cluster: %v", err)
	}
	cfg.Name = "n1"
	if _, err := leaseOf(cfg, "c1"); !errors.Is(err, leased.ErrOtherNode) {
		t.Errorf("a node of the site with the file: %v", err)
	}
}

// TestALeasedNodeReportsAndPowersOff checks that gnoded reports the deadline of its notices, and powers off at the end of
// its lease.
func TestALeasedNodeReportsAndPowersOff(t *testing.T) {
	dir := t.TempDir()
	build(t, dir)
	off, notice, lease := filepath.Join(dir, "off"), filepath.Join(dir, "notice"), filepath.Join(dir, "lease.json")
	l, config := cluster(t, dir, "cloud-7", fmt.Sprintf("runtime = \"process\"\nlease_file = %q\npower_off_program = %q\nreclaim_source = %q\nblock_metadata = false\n",
		lease, filepath.Join(dir, "program"), "file:"+notice))
	deadline := time.Now().Add(time.Minute).UTC().Truncate(time.Second)
	file := leased.File{Cluster: "c1", Lease: 7, Launch: 7, Instance: "i-1", Expires: time.Now().Add(8 * time.Second).UTC()}
	text, err := file.Text()
	for path, content := range map[string]string{
		lease: text, notice: deadline.Format(time.RFC3339), filepath.Join(dir, "program"): "#!/bin/sh\ntouch " + off + "\n",
	} {
		err = errors.Join(err, os.WriteFile(path, []byte(content), 0o700))
	}
	if err != nil {
		t.Fatal(err)
	}
	begin(t, dir, config)
	l.until(t, "a report with the deadline", func() bool { return l.report.GetReclaimAt().AsTime().Equal(deadline) })
	if _, err := os.Stat(off); err == nil {
		t.Error("powered off before the end of the lease")
	}
	l.until(t, "powered off", func() bool {
		_, err := os.Stat(off)
		return err == nil
	})
	if time.Now().Before(file.Expires) {
		t.Error("powered off before the end of the lease")
	}
	l.until(t, "a fault", func() bool {
		return strings.Contains(l.report.GetFault(), "the node powers off: the lease of the node ended")
	})
}
