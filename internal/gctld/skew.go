package gctld

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/config"
	"github.com/greylag/greylag/internal/hint"
	"github.com/greylag/greylag/internal/pki"
	"github.com/greylag/greylag/internal/version"
)

// ErrVersionSkew means that another controller runs a version with which this one must not share a
// log.
var ErrVersionSkew = errors.New("incompatible versions: more than one minor version apart")

// versionFile holds the version that used the data folder last.
const versionFile = "version"

// checkLastVersion refuses data that a version used with which this one cannot share a cluster: the
// nodes still run it.
func checkLastVersion(cfg config.Controller) error {
	last, err := readLines(filepath.Join(cfg.DataDir, versionFile))
	if err != nil {
		return err
	}
	if used := strings.Join(last, ""); !version.Compatible(version.Version, used) {
		return hint.New(fmt.Errorf("%w: this is %s, and %s was last used by %s", ErrVersionSkew, version.Version, cfg.DataDir, used),
			"upgrade one minor version at a time, the nodes first; if the other controllers are too far ahead for it, remove this one there and join it again; nothing was changed")
	}
	return nil
}

// recordVersion records that this version used the data.
func recordVersion(cfg config.Controller) error {
	return config.WriteFile(filepath.Join(cfg.DataDir, versionFile), version.Version+"\n")
}

// skewTime bounds how long the other controllers may take to answer. Those that do not answer are not
// considered.
const skewTime = time.Second

// checkVersions checks the version that used this controller's data last, and asks the other
// controllers that this host knows for theirs, before this one reads or writes any data.
func checkVersions(ctx context.Context, cfg config.Controller) error {
	id, trust, err := pki.OpenIdentity(cfg.PKIDir)
	if err != nil {
		return err
	}
	known, err := client.OpenKnown(cfg.PKIDir, nil)
	if err != nil {
		return err
	}
	c := client.New(client.Config{Known: known, TLS: pki.ClientTLS(trust, id), Timeout: skewTime})
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, skewTime)
	defer cancel()
	addresses := known.Addresses()
	faults := make([]error, len(addresses))
	var asked sync.WaitGroup
	for i, address := range addresses {
		if address == cfg.Advertise {
			continue
		}
		asked.Go(func() {
			if status, err := c.StatusOf(ctx, address); err == nil {
				faults[i] = skewed(address, status.Version)
			}
		})
	}
	asked.Wait()
	if err := errors.Join(faults...); err != nil {
		return err
	}
	return checkLastVersion(cfg)
}

// skewed refuses the version of the controller at an address.
func skewed(address, other string) error {
	if version.Compatible(version.Version, other) {
		return nil
	}
	return hint.New(fmt.Errorf("%w: this is %s, the controller at %s runs %s", ErrVersionSkew, version.Version, address, other),
		"upgrade one minor version at a time here; nothing was changed. gctl cluster upgrade-check on another controller lists the versions")
}
