package leased

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
)

// metadataRules refuse connections of all users but root to the metadata services of clouds. Port 53 is a name server
// in some clouds. The owner of a socket is that of the process that made it, also in another user namespace. The first
// two lines make the transaction replace an earlier table.
const metadataRules = `table inet greylag_metadata
delete table inet greylag_metadata
table inet greylag_metadata {
	chain output {
		type filter hook output priority 0; policy accept;
		ip daddr 169.254.169.254 tcp dport != 53 meta skuid != 0 reject with tcp reset
		ip6 daddr { fd00:ec2::254, fd20:ce::254 } tcp dport != 53 meta skuid != 0 reject with tcp reset
	}
}
`

// BlockMetadata keeps users other than root from the metadata service of the cloud. It may be repeated.
func BlockMetadata(ctx context.Context) error {
	_, err := Run(ctx, []string{"nft", "-f", "-"}, metadataRules)
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return errors.New("cannot keep jobs from the metadata service of the cloud: nft is not installed; install nftables, or set block_metadata = false")
	case err != nil:
		return fmt.Errorf("cannot keep jobs from the metadata service of the cloud: %w; or set block_metadata = false", err)
	}
	return nil
}
