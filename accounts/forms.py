"""Forms of the console for users and groups. They validate; saving goes through the services."""

from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib.auth.password_validation import validate_password

from accounts.models import Group, Name, User

if TYPE_CHECKING:
    _UserForm = forms.ModelForm[User]
    _GroupForm = forms.ModelForm[Group]
else:
    # Django's own classes take no type arguments at run time.
    _UserForm = forms.ModelForm
    _GroupForm = forms.ModelForm


class AddUserForm(_UserForm):
    """A new user; the group of the same name is made with it."""

    new_password = forms.CharField(label="Password", strip=False, widget=forms.PasswordInput)

    class Meta:
        model = User
        fields = ("username", "is_staff")

    def clean_username(self) -> str:
        return _free_name(self.cleaned_data["username"])

    def clean_new_password(self) -> str:
        return _strong(self.cleaned_data["new_password"], self.instance)


class ChangeUserForm(_UserForm):
    """An existing user; an empty password leaves the present one."""

    new_password = forms.CharField(
        label="New password", strip=False, required=False, widget=forms.PasswordInput
    )

    class Meta:
        model = User
        fields = ("is_staff", "group_quota")

    def clean_new_password(self) -> str:
        password: str = self.cleaned_data["new_password"]
        return _strong(password, self.instance) if password else ""


class AddGroupForm(_GroupForm):
    """A new group of the operator who makes it."""

    class Meta:
        model = Group
        fields = ("name",)

    def clean_name(self) -> str:
        return _free_name(self.cleaned_data["name"])


def _free_name(name: Any) -> str:
    if Name.objects.filter(name=name).exists():
        raise forms.ValidationError("A user or group has this name.")
    return str(name)


def _strong(password: str, user: User) -> str:
    validate_password(password, user)
    return password
