//go:build linux

package containerd

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/image/ociimage"
	"github.com/greylag/greylag/internal/runtime"
	"github.com/greylag/greylag/internal/runtime/oci"
)

// fetched creates an image and fetches it, with its last use ago.
func fetched(t *testing.T, r *Runtime, name string, ago time.Duration) string {
	t.Helper()
	built := must(ociimage.Unix())(t)
	built.Env = append(built.Env, "IMAGE="+name)
	path := filepath.Join(home(t), name+".tar")
	must(ociimage.WriteFile(path, built))(t)
	got := must(r.Fetch(limit(t), runtime.FetchRequest{Reference: path, Owner: runtime.Owner{UID: 1000, GID: 1000}}))(t)
	wanted(t, r, got, ago)
	return got
}

// wanted sets the last use of an image.
func wanted(t *testing.T, r *Runtime, name string, ago time.Duration) {
	t.Helper()
	at := time.Now().Add(-ago)
	r.uses.mu.Lock()
	r.uses.at[name] = at
	r.uses.mu.Unlock()
	ctx, service := r.scope(limit(t)), r.client.ImageService()
	entry := must(service.Get(ctx, name))(t)
	entry.Labels[labelUsed] = at.UTC().Format(time.RFC3339)
	must(service.Update(ctx, entry, "labels."+labelUsed))(t)
}

// TestCollect checks that images are deleted by age, then by size, the least recently used first,
// and never one that a task has or that was just used.
func TestCollect(t *testing.T) {
	r := newRuntime(t, nil)
	needContainers(t)
	const day = 24 * time.Hour
	old, used, middle, fresh := fetched(t, r, "old", 20*day), fetched(t, r, "used", 20*day), fetched(t, r, "middle", 5*day), fetched(t, r, "fresh", 2*time.Minute)
	spec := job(t, 1, "sleep 60\n")
	spec.Image, spec.Mounts = used, []runtime.Mount{{Source: spec.WorkDir, Target: spec.WorkDir}}
	if err := r.Start(limit(t), spec); err != nil {
		t.Fatal(err)
	}
	collect := func(keep runtime.Keep, want ...string) runtime.Collected {
		t.Helper()
		did := must(r.Collect(limit(t), keep))(t)
		if !slices.Equal(did.Deleted, want) {
			t.Errorf("%+v deleted %v, want %v", keep, did.Deleted, want)
		}
		return did
	}
	if did := collect(runtime.Keep{}); did.Kept != 4 || did.KeptBytes < 1<<20 {
		t.Errorf("no bounds: %+v", did)
	}
	collect(runtime.Keep{Age: 14 * day}, old)
	if did := collect(runtime.Keep{Age: 14 * day, Bytes: 1}, middle); did.Kept != 2 {
		t.Errorf("%+v", did)
	}
	spec.ID.Job, spec.Image = 2, middle
	if err := r.Start(limit(t), spec); err == nil {
		t.Error("a task has an image that was deleted")
	}
	spec.Image = fetched(t, r, "middle", 0)
	if err := r.Start(limit(t), spec); spec.Image != middle || err != nil {
		t.Errorf("an image that came again: %s, %v", spec.Image, err)
	}
	for job := range uint64(2) {
		if err := r.Remove(limit(t), runtime.TaskID{Job: job + 1, Attempt: spec.ID.Attempt}); err != nil {
			t.Fatal(err)
		}
	}
	collect(runtime.Keep{Age: 14 * day}, used)
	wanted(t, r, fresh, 2*day)
	wanted(t, r, middle, day)
	did := collect(runtime.Keep{Bytes: 1}, fresh, middle)
	if did.Kept != 0 || did.KeptBytes != 0 {
		t.Errorf("all are gone: %+v", did)
	}
}

// TestAutomaticRuntime checks that crun is used where it works, otherwise runc.
func TestAutomaticRuntime(t *testing.T) {
	bin := t.TempDir()
	program := func(name, script string) {
		if err := os.WriteFile(filepath.Join(bin, name), fmt.Appendf(nil, "#!/bin/sh\n%s\n", script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin)
	program("runc", "echo runc version 1.1")
	program("crun", "echo crun version 1.8")
	want := func(name string, mixed bool, want string) {
		t.Helper()
		if path, crun, err := oci.Find(name, mixed); err != nil || filepath.Base(path) != want || crun != (want == "crun") {
			t.Errorf("%q on a host with groups of both versions %v: %s, %v, want %s", name, mixed, path, err, want)
		}
	}
	want("", false, "crun")
	want("", true, "runc")
	want("runc", false, "runc")
	program("crun", "exit 127")
	want("", false, "runc")
	if _, _, err := oci.Find("crun", false); err == nil {
		t.Error("a crun that does not run is taken")
	}
}
