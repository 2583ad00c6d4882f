package client

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/api/gen/greylag/v1/greylagv1connect"
	"github.com/greylag/greylag/internal/config"
	"github.com/greylag/greylag/internal/pki"
)

const (
	// followEvery is how often a daemon asks for the controllers, and followRetry how soon after a
	// failure. Both vary by a quarter, so that a thousand nodes do not ask together.
	followEvery, followRetry = time.Minute, 10 * time.Second
	// statusTime bounds one question to one controller.
	statusTime = 5 * time.Second

	// learnedFile holds the learned addresses in a daemon's pki_dir, one per line.
	learnedFile = "known-controllers"
	// commandsFile holds the path of the host's client.toml there, as gctl init and join stored it.
	commandsFile = "client-file"
)

// ErrNoMember reports that no answering controller is a member of the cluster and knows a leader.
var ErrNoMember = errors.New("no member of the cluster returned the list of controllers")

// Known holds the addresses of a cluster's controllers that one daemon knows: those of its file,
// and those that the cluster has reported since. The latter are kept on disk, so that the daemon
// finds the cluster after a restart although every controller of its file is gone. Safe for
// concurrent use.
type Known struct {
	dir      string // pki_dir; "" keeps nothing
	commands string // the host's client.toml, whose drop-in names the controllers; "" for none
	seeds    []string

	mu      sync.RWMutex
	learned []string
}

// Seeds returns a Known that learns nothing.
func Seeds(controllers ...string) *Known { return &Known{seeds: controllers} }

// OpenKnown returns what the daemon with this pki_dir knows: the controllers of its file, and those
// it learned before.
func OpenKnown(pkiDir string, seeds []string) (*Known, error) {
	k := &Known{dir: pkiDir, seeds: seeds}
	learned, err := readOptional(filepath.Join(pkiDir, learnedFile))
	if err != nil {
		return nil, err
	}
	k.learned = slices.DeleteFunc(strings.Fields(learned), func(a string) bool { return !dialable(a) })
	commands, err := readOptional(filepath.Join(pkiDir, commandsFile))
	k.commands = strings.TrimSpace(commands)
	return k, err
}

// RecordCommands stores, for the daemon with this pki_dir, the absolute path of the client.toml
// that the host's commands read.
func RecordCommands(pkiDir, client string) error {
	return config.WriteFile(filepath.Join(pkiDir, commandsFile), client+"\n")
}

// Addresses returns the controllers, HOST:PORT each, learned ones first.
func (k *Known) Addresses() []string {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return distinct(slices.Concat(k.learned, k.seeds))
}

// distinct returns a list without duplicates.
func distinct(list []string) []string {
	var all []string
	for _, address := range list {
		if !slices.Contains(all, address) {
			all = append(all, address)
		}
	}
	return all
}

// Learn stores the controllers that the cluster reports, also for the host's commands. It writes
// only changes.
func (k *Known) Learn(controllers []string) error {
	learned := slices.DeleteFunc(slices.Clone(controllers), func(a string) bool { return !dialable(a) })
	slices.Sort(learned)
	if learned = slices.Compact(learned); len(learned) == 0 {
		return nil
	}
	k.mu.Lock()
	changed := !slices.Equal(k.learned, learned)
	k.learned = learned
	k.mu.Unlock()
	var err error
	if changed && k.dir != "" {
		err = config.WriteFile(filepath.Join(k.dir, learnedFile), strings.Join(learned, "\n")+"\n")
	}
	if k.commands != "" {
		err = errors.Join(err, config.WriteControllers(k.commands, learned))
	}
	if err != nil {
		return fmt.Errorf("store the controllers' addresses: %w", err)
	}
	return nil
}

// Directory is what the cluster reports to a daemon: the addresses of the controllers, and the CA
// certificates (DER) that its host must accept, the one that signs its next certificate first.
type Directory struct {
	Controllers []string
	Authorities [][]byte
}

// LearnAuthorities makes trust accept exactly these CAs (DER), and stores them, also for the host's
// commands. It writes only changes.
func (k *Known) LearnAuthorities(trust *pki.Trust, authorities [][]byte, log *slog.Logger) error {
	changed, err := trust.Replace(authorities)
	if err != nil {
		return err
	}
	if changed {
		log.Info("the cluster's CA changed", "authorities", len(authorities), "ca", trust.Fingerprint())
	}
	if k.dir == "" {
		return nil
	}
	if err := trust.Save(k.dir); err != nil || k.commands == "" {
		return err
	}
	commands, err := config.LoadClient(k.commands)
	if err != nil {
		return err
	}
	present, err := pki.LoadTrust(commands.CAFile)
	if err == nil && present.Equal(trust) {
		return nil
	}
	return config.WriteFile(commands.CAFile, string(trust.PEM()))
}

// Follow keeps k, and the CAs that trust accepts, current until ctx ends. Its first failure in a row is
// not logged: a controller that starts has no leader yet.
func (k *Known) Follow(ctx context.Context, trust *pki.Trust, ask func(context.Context) (Directory, error), log *slog.Logger) {
	failures, reported := 0, ""
	for {
		before := k.Addresses()
		directory, err := ask(ctx)
		if err == nil {
			err = errors.Join(k.Learn(directory.Controllers), k.LearnAuthorities(trust, directory.Authorities, log))
		}
		wait := followEvery
		if failures++; err != nil {
			wait = followRetry
		} else {
			failures, reported = 0, ""
		}
		switch now := k.Addresses(); {
		case ctx.Err() != nil:
			return
		case failures > 1 && err.Error() != reported:
			reported = err.Error()
			log.Warn("cannot update the list of controllers", "err", err, "known", now)
		case !slices.Equal(before, now):
			log.Info("the cluster's controllers changed", "controllers", now)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait - wait/4 + rand.N(wait/2)):
		}
	}
}

// Renewal asks the currently known controllers to renew a certificate.
func Renewal(k *Known, t *pki.Trust, id *pki.Identity) pki.Request {
	return func(ctx context.Context, csr []byte) ([]byte, error) {
		return pki.RenewFrom(k.Addresses(), t, id)(ctx, csr)
	}
}

// Members returns the addresses of the cluster's voters, as reported by one that knows a leader. A
// controller that is not a member, or is isolated, is not trusted.
func (c *Client) Members(ctx context.Context) ([]string, error) {
	all := slices.Clone(c.calls.controllers())
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	failed := []error{ErrNoMember}
	for _, address := range all {
		status, err := c.StatusOf(ctx, address)
		switch {
		case err != nil:
			failed = append(failed, err)
		case !IsMember(status):
			failed = append(failed, fmt.Errorf("controller %s is not a member", address))
		case status.Leader == "":
			failed = append(failed, fmt.Errorf("controller %s knows no leader", address))
		default:
			return voters(status), nil
		}
	}
	return nil, join(failed)
}

// Directory asks the controllers for what a daemon has to know about them.
func (c *Client) Directory(ctx context.Context) (Directory, error) {
	controllers, err := c.Members(ctx)
	if err != nil {
		return Directory{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	answer, err := c.Cluster().ListAuthorities(ctx, &greylagv1.ListAuthoritiesRequest{})
	return Directory{controllers, answer.GetCa()}, err
}

// join returns errors in one line.
func join(all []error) error {
	text := make([]string, 0, len(all))
	for _, err := range all[1:] {
		text = append(text, err.Error())
	}
	return fmt.Errorf("%w: %s", all[0], strings.Join(text, "; "))
}

// StatusOf asks the controller at an address, and no other, for its status.
func (c *Client) StatusOf(ctx context.Context, address string) (*greylagv1.GetStatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	calls := greylagv1connect.NewClusterServiceClient(straight{c.calls, address}, "https://"+address)
	status, err := calls.GetStatus(ctx, &greylagv1.GetStatusRequest{})
	if lost, is := errors.AsType[*unreachable](err); is {
		return nil, notReached(lost.target, lost.err)
	}
	if err != nil {
		return nil, notReached(address, err)
	}
	return status, nil
}

// IsMember reports whether the controller that answered is a member of the cluster.
func IsMember(s *greylagv1.GetStatusResponse) bool {
	return slices.ContainsFunc(s.Members, func(m *greylagv1.Member) bool { return m.Id == s.Id })
}

// voters returns the addresses of the voting members.
func voters(s *greylagv1.GetStatusResponse) []string {
	var list []string
	for _, m := range s.Members {
		if m.Voter {
			list = append(list, m.Address)
		}
	}
	return list
}

// dialable reports whether an address is HOST:PORT and fits into a file as it is.
func dialable(address string) bool {
	host, port, err := net.SplitHostPort(address)
	return err == nil && host != "" && port != "" && !strings.ContainsFunc(address, func(r rune) bool { return r <= ' ' || r == '"' || r == '\\' || r > '~' })
}

// readOptional returns a file's text; "" where it is absent.
func readOptional(path string) (string, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return string(text), err
}
