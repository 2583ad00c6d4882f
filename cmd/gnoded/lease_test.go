package main

import (
	"errors"
	"os"
	"path/filepath"
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
