package audit

import (
	"context"
	"fmt"
	"time"

	"github.com/greylag/greylag/test/cluster"
)

// Digests waits, at most two minutes, until all running controllers have reported the digest of
// their state at the same index, and checks that they are equal. Different digests of one index are
// an error at once.
func (a Audit) Digests(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	seen := map[uint64]map[string]string{} // index, controller, digest
	var differ error
	err := cluster.Until(ctx, "all controllers show one index", func() (bool, error) {
		running, latest := 0, ""
		for _, ctl := range a.Cluster.Controllers() {
			if !ctl.Running() {
				continue
			}
			running++
			status, err := ctl.Status(ctx)
			if err != nil {
				return false, err
			}
			at := seen[status.AppliedIndex]
			if at == nil {
				at = map[string]string{}
				seen[status.AppliedIndex] = at
			}
			at[ctl.Name] = status.Digest
			latest += fmt.Sprintf("%s at %d ", ctl.Name, status.AppliedIndex)
			if differ = sameDigest(status.AppliedIndex, at); differ != nil {
				return true, nil
			}
			if len(at) == running && running == a.running() {
				return true, nil
			}
		}
		return false, fmt.Errorf("last: %s", latest)
	})
	if err != nil {
		return err
	}
	return differ
}

func (a Audit) running() int {
	n := 0
	for _, ctl := range a.Cluster.Controllers() {
		if ctl.Running() {
			n++
		}
	}
	return n
}

func sameDigest(index uint64, at map[string]string) error {
	one, who := "", ""
	for name, digest := range at {
		switch {
		case digest == "":
			return fmt.Errorf("%s tells no digest", name)
		case one == "":
			one, who = digest, name
		case digest != one:
			return fmt.Errorf("replicas have diverged at index %d: %s has %s, %s has %s", index, who, one, name, digest)
		}
	}
	return nil
}
