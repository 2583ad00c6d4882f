package leased

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// inside is set in the process that runs in a network namespace of its own.
const inside = "GREYLAG_TEST_METADATA"

// TestBlockMetadata: in a network namespace with a metadata service only root can connect to it; other users can still
// connect to its port 53 and to other addresses.
func TestBlockMetadata(t *testing.T) {
	if os.Getenv(inside) != "" {
		testInside(t)
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: nft in a network namespace")
	}
	for _, program := range []string{"nft", "unshare", "ip", "bash"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("needs " + program)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("unshare", "--net", self, "-test.run=^TestBlockMetadata$", "-test.v")
	cmd.Env = append(os.Environ(), inside+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// testInside runs as root in the namespace.
func testInside(t *testing.T) {
	setup := "ip link set lo up && ip addr add 169.254.169.254/32 dev lo && ip addr add fd00:ec2::254/128 dev lo nodad"
	if out, err := exec.Command("bash", "-c", setup).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, address := range []string{"169.254.169.254:80", "169.254.169.254:53", "[fd00:ec2::254]:80", "127.0.0.1:80"} {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
	}
	connects := func(uid uint32, host, port string) bool {
		cmd := exec.Command("bash", "-c", "exec 3<>/dev/tcp/"+host+"/"+port)
		cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		return cmd.Run() == nil
	}
	const job = 1000
	if !connects(job, "169.254.169.254", "80") {
		t.Fatal("a job cannot connect before the rules are installed")
	}
	for range 2 { // it may be repeated
		if err := BlockMetadata(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		uid        uint32
		host, port string
		want       bool
	}{
		{job, "169.254.169.254", "80", false}, {job, "fd00:ec2::254", "80", false}, {job, "169.254.169.254", "53", true},
		{job, "127.0.0.1", "80", true}, {0, "169.254.169.254", "80", true}, {0, "fd00:ec2::254", "80", true},
	} {
		if got := connects(c.uid, c.host, c.port); got != c.want {
			t.Errorf("user %d connects to %s port %s: %t, want %t", c.uid, c.host, c.port, got, c.want)
		}
	}
	out, err := exec.Command("nft", "list", "ruleset").CombinedOutput()
	if n := strings.Count(string(out), "reject with tcp reset"); err != nil || n != 2 {
		t.Errorf("%d rules after two calls: %v\n%s", n, err, out)
	}
}

func TestBlockMetadataWithoutNft(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if err := BlockMetadata(t.Context()); err == nil || !strings.Contains(err.Error(), "install nftables") || errors.Is(err, exec.ErrNotFound) {
		t.Errorf("without nft: %v", err)
	}
}
