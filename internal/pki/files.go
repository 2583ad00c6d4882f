package pki

import (
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// The files of a pki folder. A key and its certificate are in one file, so that a renewal replaces
// both in one rename and a crash never leaves a pair that does not match.
const (
	// TrustFile is the file of the CA certificates; any user may read it.
	TrustFile = "ca.pem"
	// IdentityFile is the certificate and private key of this host's daemon, mode 0600.
	IdentityFile = "identity.pem"
	caKeyFile    = "ca-key.pem"
)

const (
	pemCertificate = "CERTIFICATE"
	pemKey         = "PRIVATE KEY"
)

// ErrExposed marks a private key that other users of the host can read.
var ErrExposed = errors.New("private key can be read by others")

// MakePrivate creates a folder for a daemon's user only, and missing parents for all users to
// traverse, whatever the umask: /var/lib/greylag/controller has siblings of other users, such as
// the reports. Existing folders keep their mode.
func MakePrivate(dir string) error {
	if err := makeWay(filepath.Dir(dir)); err != nil {
		return fmt.Errorf("create the parents of %s: %w", dir, err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("create private directory: %w", err)
	}
	return nil
}

// Adopt gives the content of a daemon's directories to the user who owns the first one, so that root
// can prepare the data of a daemon that runs as another user. Other callers than root, and missing
// directories, change nothing. Symbolic links are not followed, and files with several links are left:
// their other names may be outside. O(files).
func Adopt(dirs ...string) error {
	info, err := os.Lstat(dirs[0])
	if os.Geteuid() != 0 || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || owner.Uid == 0 {
		return nil
	}
	for _, dir := range dirs {
		if err := adopt(dir, int(owner.Uid), int(owner.Gid)); err != nil {
			return fmt.Errorf("give %s to its user: %w", dir, err)
		}
	}
	return nil
}

// adopt gives a directory and its content to a user, who may change it meanwhile: no name is followed
// out of the directory.
func adopt(dir string, user, group int) error {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	return fs.WalkDir(root.FS(), ".", func(path string, _ fs.DirEntry, err error) error {
		if err == nil {
			var info fs.FileInfo
			if info, err = root.Lstat(path); err == nil {
				if file, ok := info.Sys().(*syscall.Stat_t); ok && (info.IsDir() || file.Nlink == 1) {
					err = root.Lchown(path, user, group)
				}
			}
		}
		if errors.Is(err, fs.ErrNotExist) { // removed meanwhile
			return nil
		}
		return err
	})
}

func makeWay(dir string) error {
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := makeWay(filepath.Dir(dir)); err != nil {
		return err
	}
	err := os.Mkdir(dir, 0o755)
	if errors.Is(err, fs.ErrExist) { // another daemon was faster
		return nil
	}
	if err != nil {
		return err
	}
	return os.Chmod(dir, 0o755)
}

// writeFile replaces path so that after any crash either the old or the new content is there.
func writeFile(path string, content []byte, mode os.FileMode) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // 0600
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
			err = fmt.Errorf("write %s: %w", path, err)
		}
	}()
	_, err = f.Write(content)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err == nil {
		err = syncDir(filepath.Dir(path))
	}
	return err
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// readPrivate reads a key file and refuses one that its group or others may read. It checks the
// mode of the opened file, so that it cannot be swapped in between.
func readPrivate(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%w: %s has mode %04o, run: chmod 600 %s", ErrExposed, path, info.Mode().Perm(), path)
	}
	if info.Size() > 1<<20 {
		return nil, fmt.Errorf("%s: %d bytes is too large for a key", path, info.Size())
	}
	content := make([]byte, info.Size())
	n, err := f.ReadAt(content, 0)
	if n < len(content) {
		return nil, fmt.Errorf("%s: read %d of %d bytes: %w", path, n, len(content), err)
	}
	return content, nil
}

func keyPEM(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode private key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: pemKey, Bytes: der}), nil
}

// parseKeys reads one or more private keys.
func parseKeys(text []byte) (keys []crypto.Signer, err error) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != pemKey {
			continue
		}
		key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
		if err != nil {
			return nil, err
		}
		signer, ok := key.(crypto.Signer)
		if !ok {
			return nil, fmt.Errorf("%T cannot sign", key)
		}
		keys = append(keys, signer)
	}
	if len(keys) == 0 {
		return nil, errors.New("no PEM private key found")
	}
	return keys, nil
}

func samePublic(a, b crypto.PublicKey) bool {
	eq, ok := a.(interface{ Equal(crypto.PublicKey) bool })
	return ok && eq.Equal(b)
}
