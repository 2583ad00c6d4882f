package cluster

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// network is a bridge with one namespace for each controller behind it. This process, the nodes and
// the users are at the bridge itself.
type network struct {
	tag    string // of this cluster, in the names of links and namespaces
	subnet string // the first three numbers of the addresses
	size   int
}

// networkTag is a function of the folder, so that a process that knows the folder finds the
// namespaces. Link names have at most 15 bytes.
func networkTag(dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return fmt.Sprintf("gl%x", sum[:3])
}

func newNetwork(dir string, size int) (*network, error) {
	sum := sha256.Sum256([]byte(dir))
	n := &network{tag: networkTag(dir), subnet: fmt.Sprintf("10.%d.%d", 128+sum[0]%120, sum[1]), size: size}
	if err := errors.Join(
		do("ip", "link", "add", n.tag, "type", "bridge"),
		do("ip", "addr", "add", n.subnet+".254/24", "dev", n.tag),
		do("ip", "link", "set", n.tag, "up")); err != nil {
		return nil, err
	}
	for i := range size {
		link, space := fmt.Sprintf("%sv%d", n.tag, i), n.space(i)
		for _, args := range [][]string{
			{"netns", "add", space},
			{"link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", space},
			{"link", "set", link, "master", n.tag, "up"},
			{"-n", space, "addr", "add", n.address(i) + "/24", "dev", "eth0"},
			{"-n", space, "link", "set", "eth0", "up"},
			{"-n", space, "link", "set", "lo", "up"},
		} {
			if err := do("ip", args...); err != nil {
				return nil, err
			}
		}
	}
	return n, n.reachable()
}

// reachable waits until the bridge forwards, which takes a moment after links come up.
func (n *network) reachable() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return Until(ctx, "the network comes up", func() (bool, error) {
		for i := range n.size {
			state, err := os.ReadFile(fmt.Sprintf("/sys/class/net/%sv%d/operstate", n.tag, i))
			if err != nil || strings.TrimSpace(string(state)) != "up" {
				return false, fmt.Errorf("link %d is %s", i, state)
			}
		}
		return true, nil
	})
}

func (n *network) space(i int) string { return fmt.Sprintf("%s-%d", n.tag, i) }

func (n *network) address(i int) string { return fmt.Sprintf("%s.%d", n.subnet, i+1) }

// enter returns the beginning of a command line that runs in a controller's namespace.
func (n *network) enter(i int) []string {
	path, err := lookPath("nsenter")
	if err != nil {
		path = "nsenter" // Options were checked; starting says it again
	}
	return []string{path, "--net=/run/netns/" + n.space(i), "--"}
}

// block drops what one controller sends to another, silently, at the receiver.
func (n *network) block(from, to int) error {
	return do("ip", "netns", "exec", n.space(to), "iptables", "-w", "-A", "INPUT", "-s", n.address(from), "-j", "DROP")
}

// Cut stops all traffic from one controller to another, in this direction only.
func (c *Cluster) Cut(from, to int) error { return c.network.block(from, to) }

// Split cuts controllers into groups without connections to each other; a controller in no group is
// alone. Users and nodes still reach all of them.
func (c *Cluster) Split(groups ...[]int) error {
	side := make([]int, len(c.controllers))
	for i := range side {
		side[i] = -1 - i
	}
	for g, group := range groups {
		for _, i := range group {
			side[i] = g
		}
	}
	for from := range side {
		for to := range side {
			if side[from] != side[to] {
				if err := c.Cut(from, to); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// Isolate cuts a controller off from all others, users and nodes too.
func (c *Cluster) Isolate(i int) error {
	space := c.network.space(i)
	return errors.Join(
		do("ip", "netns", "exec", space, "iptables", "-w", "-A", "INPUT", "!", "-i", "lo", "-j", "DROP"),
		do("ip", "netns", "exec", space, "iptables", "-w", "-A", "OUTPUT", "!", "-o", "lo", "-j", "DROP"))
}

// Lose drops a percentage of the packets between controllers.
func (c *Cluster) Lose(percent int) error {
	var failed error
	for to := range c.controllers {
		for from := range c.controllers {
			failed = errors.Join(failed, do("ip", "netns", "exec", c.network.space(to), "iptables", "-w", "-A", "INPUT", "-s", c.network.address(from),
				"-m", "statistic", "--mode", "random", "--probability", fmt.Sprintf("%.2f", float64(percent)/100), "-j", "DROP"))
		}
	}
	return failed
}

// Heal undoes Cut, Split, Isolate and Lose.
func (c *Cluster) Heal() error {
	var failed error
	for i := range c.controllers {
		failed = errors.Join(failed, do("ip", "netns", "exec", c.network.space(i), "iptables", "-w", "-F"))
	}
	return failed
}

// removeNetwork removes the namespaces and links of a folder's cluster.
func removeNetwork(dir string) error {
	tag := networkTag(dir)
	spaces, err := filepath.Glob("/run/netns/" + tag + "-*")
	if err != nil {
		return err
	}
	var failed error
	for _, space := range spaces {
		failed = errors.Join(failed, do("ip", "netns", "del", filepath.Base(space)))
	}
	links, err := filepath.Glob("/sys/class/net/" + tag + "*")
	if err != nil {
		return err
	}
	for _, link := range links {
		_ = do("ip", "link", "del", filepath.Base(link)) // a veth may go with its namespace
	}
	if left, _ := filepath.Glob("/sys/class/net/" + tag); len(left) > 0 {
		failed = errors.Join(failed, fmt.Errorf("bridge %s cannot be removed", tag))
	}
	return failed
}
