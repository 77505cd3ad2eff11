package clients

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// Access is what servers ask of a client before they serve it. It goes to workers
// over their standard input, and nowhere else: not into logs, parameters or the
// history. Printing it shows nothing.
type Access struct {
	User     string `json:"user,omitempty"`
	Password string `json:"password,omitempty"`
	TLS      bool   `json:"tls,omitempty"`
	CA       string `json:"ca,omitempty"`   // file of certificates; "" for the system's
	Cert     string `json:"cert,omitempty"` // files of the client's own certificate
	Key      string `json:"key,omitempty"`
	// ServerName is whom the server's certificate has to be for, since the address
	// that is dialled is a proxy's.
	ServerName string `json:"server_name,omitempty"`
}

// String hides what is in it.
func (*Access) String() string { return "(secret)" }

// GoString hides what is in it.
func (*Access) GoString() string { return "(secret)" }

// Config is the TLS configuration; nil for plain text.
func (a *Access) Config() (*tls.Config, error) {
	if a == nil || !a.TLS {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: a.ServerName}
	if a.CA != "" {
		pem, err := os.ReadFile(a.CA)
		if err != nil {
			return nil, fmt.Errorf("certificates to trust: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, errors.New("certificates to trust: there are none in " + a.CA)
		}
	}
	if a.Cert != "" {
		own, err := tls.LoadX509KeyPair(a.Cert, a.Key)
		if err != nil {
			return nil, fmt.Errorf("client certificate: %w", err)
		}
		c.Certificates = []tls.Certificate{own}
	}
	if a.ServerName != "" {
		verifyName(c)
	}
	return c, nil
}

// verifyName has the server's certificate verified for the name in the
// configuration. etcd's client puts the address that it dials in that name's place,
// and so does grpc, so the usual verification would be for the proxy.
func verifyName(c *tls.Config) {
	name, roots := c.ServerName, c.RootCAs
	c.InsecureSkipVerify = true // in favour of the next line's verification
	c.VerifyConnection = func(s tls.ConnectionState) error {
		o := x509.VerifyOptions{DNSName: name, Roots: roots, Intermediates: x509.NewCertPool()}
		for _, between := range s.PeerCertificates[1:] {
			o.Intermediates.AddCert(between)
		}
		if _, err := s.PeerCertificates[0].Verify(o); err != nil {
			return &tls.CertificateVerificationError{UnverifiedCertificates: s.PeerCertificates, Err: err}
		}
		return nil
	}
}

// Login gives user and password, empty where there are none.
func (a *Access) Login() (user, password string) {
	if a == nil {
		return "", ""
	}
	return a.User, a.Password
}
