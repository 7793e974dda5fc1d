/* TLS where hiredis has it. hiredis alone would not compare the certificate's name with the host, so the session is made here. */
#define _POSIX_C_SOURCE 200809L
#include <hiredis/hiredis.h>
#include <hiredis/hiredis_ssl.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <stdio.h>

#include "checkpoint/redis_tls.h"

static SSL_CTX *context;                     /* NULL: OpenSSL could not be set up */
static pthread_once_t context_once = PTHREAD_ONCE_INIT;

/* The authorities are the system's, or those of OpenSSL's own SSL_CERT_FILE and SSL_CERT_DIR. */
static void context_make(void)
{
    SSL_CTX *made = SSL_CTX_new(TLS_client_method());

    if (made != NULL && SSL_CTX_set_min_proto_version(made, TLS1_2_VERSION) == 1 &&
        SSL_CTX_set_default_verify_paths(made) == 1) {
        SSL_CTX_set_verify(made, SSL_VERIFY_PEER, NULL);
        context = made;
    } else {
        SSL_CTX_free(made);
    }
}

/* The name that the certificate must bear: an address as such, anything else as a host name, which is also told to the server. */
static bool name_set(SSL *ssl, const char *host)
{
    return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) == 1 ||
           (SSL_set1_host(ssl, host) == 1 && SSL_set_tlsext_host_name(ssl, host) == 1);
}

status redis_tls_known(struct error *err)
{
    (void)err;
    return ST_OK;
}

bool redis_tls_start(struct redisContext *ctx, const char *host)
{
    SSL *ssl;
    long verified;

    pthread_once(&context_once, context_make);
    ssl = context != NULL ? SSL_new(context) : NULL;
    if (ssl == NULL || !name_set(ssl, host)) {
        snprintf(ctx->errstr, sizeof ctx->errstr, "OpenSSL cannot be set up");
        SSL_free(ssl);
        return false;
    }
    if (redisInitiateSSL(ctx, ssl) == REDIS_OK)
        return true;
    verified = SSL_get_verify_result(ssl);
    if (verified != X509_V_OK)
        snprintf(ctx->errstr, sizeof ctx->errstr, "TLS: %s", X509_verify_cert_error_string(verified));
    SSL_free(ssl);
    return false;
}
